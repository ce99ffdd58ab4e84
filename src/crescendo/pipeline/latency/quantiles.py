"""What do bucket counts say about each group of samples?

Computes count, minimum, maximum, mean and percentiles of all groups at once, with a confidence interval for each
percentile. A percentile is the upper edge of the bucket that holds its rank, but never more than the largest sample;
with fewer than ten samples beyond it, it is withheld. A bucket may have several rows: they add up. Never averages
percentiles.
"""

from dataclasses import dataclass
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

Z_95 = 1.959963984540054

STATISTICS = arrow_schema_of(SampleStatistics)
"""The columns of a group's statistics."""


def group_statistics(counts: pa.Table, keys: list[str]) -> pa.Table:
    """One row per group, sorted by keys: the keys, then `STATISTICS`."""
    # Sorted by sum too: rows of one bucket then add up in the same order, however the files were split.
    counts = counts.sort_by([(name, "ascending") for name in (*keys, BUCKET, COUNT, SUM_NS)])
    first = _group_starts(counts, keys)
    bucket, samples = _ints(counts, BUCKET), _ints(counts, COUNT)
    total = np.add.reduceat(samples, first) if first.size else samples
    columns: dict[str, pa.Array] = {
        COUNT: pa.array(total),
        MIN_NS: pa.array(_reduced(np.minimum, _ints(counts, MIN_NS), first)),
        MAX_NS: pa.array(highest := _reduced(np.maximum, _ints(counts, MAX_NS), first)),
        NEGATIVE: pa.array(_reduced(np.add, np.where(bucket < 0, samples, 0), first)),
        # As a float: summed nanoseconds of a long run may exceed 64 bits.
        MEAN_NS: pa.array(_reduced(np.add, counts[SUM_NS].to_numpy().astype(np.float64), first) / total),
    }
    groups = _Groups(bucket, np.cumsum(samples), total, columns[MIN_NS].to_numpy(), highest)
    for name, percent in PERCENTILES.items():
        low, high = interval_ranks(total, percent)
        reported = total - (rank := ranks(total, percent)) >= SAMPLES_BEYOND
        columns[name] = groups.edge(rank, reported, upper=True)
        columns[name + LOW] = groups.edge(low, reported, upper=False)
        columns[name + HIGH] = groups.edge(high, reported, upper=True)
    return pa.table({name: counts[name].take(pa.array(first)) for name in keys} | columns)


@dataclass(frozen=True)
class _Groups:
    """All groups in one sequence: a rank in a group, plus the samples of the groups before it, is a rank in all."""

    bucket: Int64s
    cumulative: Int64s
    total: Int64s
    lowest: Int64s
    highest: Int64s

    def edge(self, rank: Int64s, reported: npt.NDArray[np.bool_], *, upper: bool) -> pa.Array:
        """The upper or lower edge of the bucket that holds a rank of each group; null where it is withheld."""
        before = np.cumsum(self.total) - self.total
        bucket = self.bucket[np.searchsorted(self.cumulative, (before + rank)[reported])]
        value = np.zeros(self.total.size, np.int64)
        value[reported] = _ceilings(bucket) if upper else _ceilings(bucket - 1) + 1
        return pa.array(np.clip(value, self.lowest, self.highest), mask=~reported)


def ranks(count: Int64s, percent: float) -> Int64s:
    """The rank of a percentile among `count` samples, from 1; in integers, as `model.histogram.rank_of`."""
    share = Fraction(str(percent)) / 100
    return np.maximum(-(-count * share.numerator // share.denominator), 1)


def interval_ranks(count: Int64s, percent: float) -> tuple[Int64s, Int64s]:
    """The ranks between which the true percentile lies with a confidence of 95 %, whatever the distribution.

    The number of samples below the true percentile is binomial; with ten samples beyond it, it is close to normal.
    """
    share = percent / 100
    spread = Z_95 * np.sqrt(count * share * (1 - share))
    low = np.floor(count * share - spread).astype(np.int64)
    high = np.ceil(count * share + spread).astype(np.int64) + 1
    return np.clip(low, 1, count), np.clip(high, 1, count)


def _group_starts(counts: pa.Table, keys: list[str]) -> Int64s:
    """Where each group begins in a sorted table."""
    changed = np.zeros(counts.num_rows, bool)
    changed[:1] = True
    for key in keys:
        codes = counts[key].combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
        changed[1:] |= codes[1:] != codes[:-1]
    starts: Int64s = np.flatnonzero(changed)
    return starts


def _reduced(how: np.ufunc, values: npt.NDArray[Any], first: Int64s) -> npt.NDArray[Any]:
    reduced: npt.NDArray[Any] = how.reduceat(values, first) if first.size else values
    return reduced


def _ceilings(buckets: Int64s) -> Int64s:
    distinct, back = np.unique(buckets, return_inverse=True)
    return np.array([bucket_ceiling(int(bucket)) for bucket in distinct], np.int64)[back]


def _ints(counts: pa.Table, column: str) -> Int64s:
    values: Int64s = counts[column].to_numpy().astype(np.int64)
    return values
