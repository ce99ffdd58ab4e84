"""Could our own delay explain a difference between two sides?

Each side has its values as measured and without own delay. An outcome counts only if both agree on it: subtracting own
delay from both sides must not change what is said. Reads the results of the runs; a run of an older version has no
account of own delay and is taken as it is.
"""

from collections.abc import Iterable

from crescendo.model.own_delay import explains
from crescendo.pipeline.compare.intervals import Interval
from crescendo.pipeline.compare.outcomes import Change, format_change, outcome_of
from crescendo.pipeline.compare.side_results import RunResults

WithAndWithout = tuple[float | None, float | None]


def rate_without(side: Iterable[RunResults]) -> float:
    """The rate without own delay, relative to the rate."""
    return _relative((results.rate.sustained, results.rate.without_own_delay) for results in side)


def latency_without(side: Iterable[RunResults], kind: str, percentile: str) -> float:
    """A percentile without own delay, relative to the percentile."""

    def of(results: RunResults) -> WithAndWithout:
        less = results.without_own_delay.get(kind)
        return results.percentile(kind, percentile), None if less is None else less.percentiles_ns.get(percentile)

    return _relative(map(of, side))


def explained(ratio: Interval, factor: float, threshold: float, *, more_is_better: bool) -> str:
    """Why own delay could explain the outcome; empty if it could not. `factor` is how it scales the ratio."""

    def claim(scale: float) -> Change:
        ends = ratio.low * scale - 1, ratio.high * scale - 1
        return outcome_of(*ends, threshold, more_is_better=more_is_better)

    if not explains(claim, 1.0, factor):
        return ""
    moved, without = ratio.value - 1, ratio.value * factor - 1
    return f"own delay could explain it: {format_change(moved)} would be {format_change(without)} without it"


def _relative(pairs: Iterable[WithAndWithout]) -> float:
    known = [(value, less) for value, less in pairs if value and less is not None]
    total = sum(value for value, _ in known)
    return sum(less for _, less in known) / total if total else 1.0


def quotient(after: float, before: float) -> float:
    """Without own delay nothing may be left of a latency."""
    return after / before if before > 0 else 1.0
