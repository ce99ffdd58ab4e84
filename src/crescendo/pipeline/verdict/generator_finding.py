"""What was found out about one side of the load generator? Holds sentences; judges nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crescendo.model.metrics import Metric


@dataclass
class GeneratorFinding:
    """One side of the generator: its failures, what the bounds tolerate, and which statistics are unknown."""

    failures: list[str] = field(default_factory=list)
    tolerated: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    doubts: dict[str, list[str]] = field(default_factory=dict)

    def doubt(self, sentence: str, undermined: Sequence[Metric]) -> None:
        self.failures.append(sentence)
        for metric in undermined:
            self.doubts.setdefault(metric.name, []).append(sentence)

    def tolerate(self, sentence: str) -> None:
        self.tolerated.append(f"{sentence}, but the bound holds anyway")

    def known(self, statistic: str, values: Mapping[str, float | None]) -> dict[str, float]:
        """The values that peers reported; the others are noted as unknown."""
        self.unknown.extend(f"{statistic} of {peer}" for peer, value in values.items() if value is None)
        return {peer: value for peer, value in values.items() if value is not None}
