"""What do bucket counts say about each group of samples?

Computes count, minimum, maximum, mean and percentiles of all groups at once. A percentile is the upper edge of the
bucket that holds its rank, but never more than the largest sample; with fewer than ten samples beyond it, it is
withheld. A bucket may have several rows: they add up. Never averages percentiles. Sums do not show how certain a
percentile is: `interval_statistics` adds the ends of intervals, which are null here.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crescendo.model.arrays import Int64s
from crescendo.model.histogram import bucket_ceiling
from crescendo.model.metrics import PERCENTILES, SAMPLES_BEYOND
from crescendo.pipeline.columns import BUCKET, COUNT, MAX_NS, MIN_NS, NEGATIVE, SUM_NS
from crescendo.record.table_types import arrow_schema_of, column_name
from crescendo.record.tables import SampleStatistics

MEAN_NS = column_name(SampleStatistics.mean_ns)
LOW, HIGH = "_low", "_high"
"""Suffixes of a percentile's name for the ends of its 95 % interval."""

Intervals = Mapping[str, tuple[Int64s, Int64s]]
"""By name of a percentile: the lower and the upper rank of its interval in each group, or 0 where there is none."""

STATISTICS = arrow_schema_of(SampleStatistics)
"""The columns of a group's statistics."""


def group_statistics(counts: pa.Table, keys: list[str]) -> pa.Table:
    """One row per group, sorted by keys: the keys, then `STATISTICS`."""
    return GroupedCounts(counts, keys).statistics()


class GroupedCounts:
    """All groups in one sequence: a rank in a group, plus the samples of the groups before it, is a rank in all."""

    def __init__(self, counts: pa.Table, keys: list[str]) -> None:
        # Sorted by sum too: rows of one bucket then add up in the same order, however the files were split.
        self._counts = counts.sort_by([(name, "ascending") for name in (*keys, BUCKET, COUNT, SUM_NS)])
        self._first = _group_starts(self._counts, keys)
        self._bucket, samples = _ints(self._counts, BUCKET), _ints(self._counts, COUNT)
        self._samples = samples
        self._cumulative = np.cumsum(samples)
        self.keys = {name: self._counts[name].take(pa.array(self._first)) for name in keys}
        self.total = self._reduced(np.add, samples)
        self._lowest = self._reduced(np.minimum, _ints(self._counts, MIN_NS))
        self._highest = self._reduced(np.maximum, _ints(self._counts, MAX_NS))

    def statistics(self, intervals: Intervals | None = None) -> pa.Table:
        """The keys, then `STATISTICS`; without `intervals`, their ends are null."""
        samples, bucket = self._samples, self._bucket
        columns: dict[str, pa.Array] = {
            COUNT: pa.array(self.total),
            MIN_NS: pa.array(self._lowest),
            MAX_NS: pa.array(self._highest),
            NEGATIVE: pa.array(self._reduced(np.add, np.where(bucket < 0, samples, 0))),
            # As a float: summed nanoseconds of a long run may exceed 64 bits.
            MEAN_NS: pa.array(self._reduced(np.add, self._counts[SUM_NS].to_numpy().astype(np.float64)) / self.total),
        }
        for name, percent in PERCENTILES.items():
            reported = self.reported(percent)
            columns[name] = self._edge(ranks(self.total, percent), reported, upper=True)
            low, high = (intervals or {}).get(name, (np.zeros_like(self.total), np.zeros_like(self.total)))
            given = reported & (low > 0)
            columns[name + LOW] = self._edge(low, given, upper=False)
            columns[name + HIGH] = self._edge(high, given, upper=True)
        return pa.table(self.keys | columns)

    def reported(self, percent: float) -> npt.NDArray[np.bool_]:
        """Whether each group has enough samples beyond the percentile."""
        return self.total - ranks(self.total, percent) >= SAMPLES_BEYOND

    def percentile_bucket(self, percent: float) -> Int64s:
        """The bucket that holds the percentile of each group."""
        return self._bucket[self._position(ranks(self.total, percent))]

    def _position(self, rank: Int64s) -> Int64s:
        """The row that holds a rank of each group."""
        start = np.cumsum(self.total) - self.total
        position: Int64s = np.searchsorted(self._cumulative, start + rank)
        return position

    def _edge(self, rank: Int64s, reported: npt.NDArray[np.bool_], *, upper: bool) -> pa.Array:
        """The upper or lower edge of the bucket that holds a rank of each group; null where it is withheld."""
        bucket = self._bucket[self._position(np.maximum(rank, 1))[reported]]
        value = np.zeros(self.total.size, np.int64)
        value[reported] = _ceilings(bucket) if upper else _ceilings(bucket - 1) + 1
        return pa.array(np.clip(value, self._lowest, self._highest), mask=~reported)

    def _reduced(self, how: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        reduced: npt.NDArray[Any] = how.reduceat(values, self._first) if self._first.size else values
        return reduced


def ranks(count: Int64s, percent: float) -> Int64s:
    """The rank of a percentile among `count` samples, from 1; in integers, as `model.histogram.rank_of`."""
    share = Fraction(str(percent)) / 100
    return np.maximum(-(-count * share.numerator // share.denominator), 1)


def _group_starts(counts: pa.Table, keys: list[str]) -> Int64s:
    """Where each group begins in a sorted table."""
    changed = np.zeros(counts.num_rows, bool)
    changed[:1] = True
    for key in keys:
        codes = counts[key].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changed[1:] |= codes[1:] != codes[:-1]
    starts: Int64s = np.flatnonzero(changed)
    return starts


def _ceilings(buckets: Int64s) -> Int64s:
    distinct, back = np.unique(buckets, return_inverse=True)
    return np.array([bucket_ceiling(int(bucket)) for bucket in distinct], np.int64)[back]


def _ints(counts: pa.Table, column: str) -> Int64s:
    values: Int64s = counts[column].to_numpy().astype(np.int64)
    return values
