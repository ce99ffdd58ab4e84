"""What does the page of a comparison read?

The fields of the document that `crescendo compare --json` prints; others are ignored. The page is a function of that
document, so it can also be drawn from one that was kept, and knows nothing about how the comparison was made.
"""

from typing import Any

import msgspec
from msgspec import Struct


class SideValue(Struct, frozen=True):
    """A value of one side with its interval, or the values of its repeats."""

    value: float | None
    low: float | None = None
    high: float | None = None
    runs: list[float] = []


class ComparedMetric(Struct, frozen=True):
    """One metric. `change` and its ends are relative to the baseline: 0.1 is 10 % more."""

    metric: str
    unit: str
    baseline: SideValue
    run: SideValue
    outcome: str
    reason: str
    basis: str = ""
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None


class ComparisonDocument(Struct, frozen=True):
    baseline: list[str]
    run: list[str]
    threshold: float
    outcome: str
    metrics: list[ComparedMetric]
    doubts: list[str]
    notes: list[str]
    confidence: float = 0.95  # of the interval of each change


def comparison_document(result: Any) -> ComparisonDocument:
    """From the result of a comparison, or from its JSON as plain values."""
    return msgspec.convert(msgspec.to_builtins(result), ComparisonDocument)
