"""What does the page of a history show? Series of comparable runs, and where each metric changed. Computes nothing."""

from msgspec import Struct


class HistoryRun(Struct, frozen=True):
    """One run of a series, in the order of their starts."""

    name: str
    started_ns: int
    outcome: str
    link: str = ""
    in_baseline: bool = False


class HistoryChange(Struct, frozen=True):
    """Where a metric changed: the first run after it, the levels on both sides, and what a person said about it."""

    run: str
    position: int  # among all runs of the series
    before: float
    after: float
    change: float
    worse: bool
    state: str = ""  # confirmed, dismissed, or nothing yet
    note: str = ""


class HistoryMetric(Struct, frozen=True):
    """One metric: a value for each run that counts, by its position in the series."""

    metric: str
    positions: list[int]
    values: list[float]
    changes: list[HistoryChange]
    baseline: tuple[float, float] | None = None  # the lowest and highest value in the baseline


class HistorySeries(Struct, frozen=True):
    """The runs with one fingerprint."""

    fingerprint: str
    experiment: str
    machine: str
    runs: list[HistoryRun]
    metrics: list[HistoryMetric]


class HistoryDocument(Struct, frozen=True):
    """Everything in one place of runs."""

    place: str
    series: list[HistorySeries]
