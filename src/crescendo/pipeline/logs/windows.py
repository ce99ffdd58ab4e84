"""How long did actions take, and how many were there, in each window of time?

An action belongs to every type that is a prefix of its name, and to the window in which it ended. Percentiles are
exact: Spark counts how often each duration occurs and finds the two ranks next to a percentile, so only one row per
type and window reaches the driver. The standard deviation is that of a sample (n - 1). Reads no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.model.units import Duration
from crescendo.pipeline.columns import ACTION, COUNT, DURATION_NS, T_NS

MEDIAN = 50.0
LOW_BAR, HIGH_BAR = 2.5, 97.5
PERCENTILES = (0.5, 1.0, LOW_BAR, 5.0, 10.0, MEDIAN, 90.0, 95.0, HIGH_BAR, 99.0, 99.5)
MAX_WINDOWS = 100_000

_TYPE, _WINDOW, _REACHED, _SAMPLES, _MEAN = "type", "window", "reached", "samples", "mean"


@dataclass(frozen=True)
class TimeRange:
    """From one time to another, both inclusive."""

    start_ns: int
    end_ns: int

    def trimmed(self, trim_ns: int) -> "TimeRange":
        """Without the start-up at the beginning and the wind-down at the end."""
        inner = TimeRange(self.start_ns + trim_ns, self.end_ns - trim_ns)
        if inner.end_ns < inner.start_ns:
            length = Duration(self.end_ns - self.start_ns)
            raise ConfigError(f"--trim {Duration(trim_ns)}: nothing is left; the logs cover {length}, trim less")
        return inner

    def count(self, window_ns: int) -> int:
        """The number of windows; the last one may be shorter."""
        windows = (self.end_ns - self.start_ns) // window_ns + 1
        if windows > MAX_WINDOWS:
            raise ConfigError(
                f"--window {Duration(window_ns)}: the logs would have {windows:,} windows; "
                f"choose a longer one, so that there are at most {MAX_WINDOWS:,}"
            )
        return windows


@dataclass(frozen=True)
class Sample:
    """Statistics of the durations in one window. Never empty."""

    count: int
    mean_ns: float
    variance_ns2: float | None  # None for a single value
    min_ns: int
    max_ns: int
    percentiles_ns: dict[float, float]

    @property
    def deviation_ns(self) -> float | None:
        return None if self.variance_ns2 is None else self.variance_ns2**0.5


@dataclass(frozen=True)
class Slot:
    """One window of one type."""

    type: str
    start_ns: int
    length_ns: int  # the last window ends with the logs
    whole: bool
    sample: Sample | None  # None if no action ended in it


def time_range_of(spans: DataFrame) -> TimeRange | None:
    """From the end of the first action to the end of the last one, whatever their types. None without actions."""
    (row,) = spans.agg(F.min(T_NS).alias("first"), F.max(T_NS).alias("last")).collect()
    return None if row["first"] is None else TimeRange(row["first"], row["last"])


def windows(spans: DataFrame, types: Sequence[str], time_range: TimeRange, window_ns: int) -> list[Slot]:
    """All windows of all types, ordered by type, then by time."""
    count = time_range.count(window_ns)
    rows = window_statistics(spans, types, time_range, window_ns).collect()
    found = {(row[_TYPE], row[_WINDOW]): row for row in rows}
    slots = []
    for number, name in enumerate(types):
        for index in range(count):
            start_ns = time_range.start_ns + index * window_ns
            length_ns = min(window_ns, time_range.end_ns - start_ns)
            row = found.get((number, index))
            slots.append(Slot(name, start_ns, length_ns, length_ns == window_ns, None if row is None else _sample(row)))
    return slots


def window_statistics(spans: DataFrame, types: Sequence[str], time_range: TimeRange, window_ns: int) -> DataFrame:
    """One row per type (its index) and window with any durations."""
    ended_ns = F.col(T_NS)
    inside = (ended_ns >= F.lit(time_range.start_ns).cast("long")) & (ended_ns <= F.lit(time_range.end_ns).cast("long"))
    window = F.call_function("div", ended_ns - F.lit(time_range.start_ns).cast("long"), F.lit(window_ns).cast("long"))
    counts = (
        spans.where(inside)
        .select(F.explode(_types_of(F.col(ACTION), types)).alias(_TYPE), window.alias(_WINDOW), DURATION_NS)
        .groupBy(_TYPE, _WINDOW, DURATION_NS)
        .count()
    )
    group = Window.partitionBy(_TYPE, _WINDOW)
    weighted = F.col(DURATION_NS).cast("double") * F.col(COUNT)
    ranked = counts.withColumns(
        {_SAMPLES: F.sum(COUNT).over(group), _REACHED: F.sum(COUNT).over(group.orderBy(DURATION_NS))}
    ).withColumn(_MEAN, F.sum(weighted).over(group) / F.col(_SAMPLES))
    # In two passes, because the difference of two large sums would lose the digits of a small deviation.
    squares = F.sum(F.pow(F.col(DURATION_NS) - F.col(_MEAN), F.lit(2)) * F.col(COUNT))
    return ranked.groupBy(_TYPE, _WINDOW, _SAMPLES, _MEAN).agg(
        squares.alias("squares"),
        F.min(DURATION_NS).alias("least"),
        F.max(DURATION_NS).alias("most"),
        *(column for index, percent in enumerate(PERCENTILES) for column in _rank_neighbours(index, percent)),
    )


def _types_of(action: Column, types: Sequence[str]) -> Column:
    """The indices of all types that an action belongs to."""
    return F.array_compact(F.array(*(F.when(action.startswith(name), F.lit(at)) for at, name in enumerate(types))))


def _rank_neighbours(index: int, percent: float) -> tuple[Column, Column]:
    """The values at the two ranks next to a percentile."""
    share = Fraction(str(percent)) / 100
    rank = F.call_function("div", (F.col(_SAMPLES) + 1) * share.numerator, F.lit(share.denominator).cast("long"))
    return _value_at(rank).alias(f"low_{index}"), _value_at(rank + 1).alias(f"high_{index}")


def _value_at(rank: Column) -> Column:
    clipped = F.least(F.greatest(rank, F.lit(1)), F.col(_SAMPLES))
    return F.min(F.when(F.col(_REACHED) >= clipped, F.col(DURATION_NS)))


def _sample(row: Row) -> Sample:
    count = row[_SAMPLES]
    return Sample(
        count=count,
        mean_ns=row[_MEAN],
        variance_ns2=row["squares"] / (count - 1) if count > 1 else None,
        min_ns=row["least"],
        max_ns=row["most"],
        percentiles_ns={percent: _interpolated(row, index, percent) for index, percent in enumerate(PERCENTILES)},
    )


def _interpolated(row: Row, index: int, percent: float) -> float:
    """The value at rank p (n + 1) / 100 of the sorted values, as in the original analyzer."""
    part = Fraction(str(percent)) / 100 * (row[_SAMPLES] + 1) % 1
    low, high = row[f"low_{index}"], row[f"high_{index}"]
    return float(low + part * (high - low))
