"""What is a validity rule?

A rule has a name, knows which metrics it undermines, and finds out from the evidence whether it holds. Defines the
values only; the rules are in `validity`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crescendo.model.metrics import Metric
from crescendo.pipeline.verdict.evidence import Evidence
from crescendo.record.summary import Validity


@dataclass(frozen=True)
class RuleFinding:
    """Whether a rule holds, what it found, and the reasons for each check that it undermines."""

    holds: bool
    detail: str
    doubts: dict[str, list[str]] = field(default_factory=dict)
    narrowly: bool = False
    """Whether it holds although something was found that a reader should know."""


@dataclass(frozen=True)
class ValidityFinding:
    """One item of the validity list, and the reasons for each check that it undermines."""

    validity: Validity
    doubts: dict[str, list[str]]


def every_metric(_metric: Metric) -> bool:
    return True


@dataclass(frozen=True)
class ValidityRule:
    """One condition. `find` gets the checked metrics that it may undermine; None when it does not apply to the run."""

    name: str
    find: Callable[[Evidence, Sequence[Metric]], RuleFinding | None]
    undermines: Callable[[Metric], bool]

    def apply(self, evidence: Evidence) -> ValidityFinding | None:
        found = self.find(evidence, [metric for metric in evidence.metrics if self.undermines(metric)])
        if found is None:
            return None
        # A rule that undermines every check is never harmless, even if there are no checks.
        noted = found.narrowly if found.holds else not found.doubts and self.undermines is not every_metric
        return ValidityFinding(Validity(self.name, found.holds, found.detail, noted), found.doubts)


def rule(name: str, find: Callable[[Evidence, Sequence[Metric]], RuleFinding | None]) -> ValidityRule:
    """A rule that undermines the metrics that list it in `undermined_by`."""
    return ValidityRule(name, find, lambda metric: name in metric.undermined_by)


def held(detail: str, *, narrowly: bool = False) -> RuleFinding:
    return RuleFinding(True, detail, narrowly=narrowly)


def failed(reasons: list[str], undermined: Iterable[Metric]) -> RuleFinding:
    return RuleFinding(False, "; ".join(reasons), {metric.name: reasons for metric in undermined})
