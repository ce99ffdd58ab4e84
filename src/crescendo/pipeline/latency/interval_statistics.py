"""How certain are the percentiles of each group?

Goes through the bucket counts once more, second by second, and counts the samples beyond each percentile;
`percentile_intervals` turns those counts into intervals. Reads counts, no messages. The statistics themselves are those
of `quantiles`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crescendo.model.arrays import Int64s
from crescendo.model.metrics import PERCENTILES
from crescendo.pipeline.columns import BUCKET, COUNT, SECOND
from crescendo.pipeline.latency.percentile_intervals import RankInterval, rank_intervals
from crescendo.pipeline.latency.quantiles import GroupedCounts

Reasons = dict[tuple[str, ...], dict[str, str]]
"""By group: why a percentile has no interval."""


@dataclass(frozen=True)
class IntervalStatistics:
    """The rows of `group_statistics` with the ends of intervals, and why there is none."""

    table: pa.Table
    reasons: Reasons


def interval_statistics(counts: pa.Table, keys: list[str], by_second: Iterable[pa.Table]) -> IntervalStatistics:
    """`counts` has one or more rows per group and bucket; `by_second` the same counts per second, in any number of
    tables of which each holds later seconds than those before it."""
    groups = GroupedCounts(counts, keys)
    names = list(zip(*(column.to_pylist() for column in groups.keys.values()), strict=True))
    buckets = np.array([groups.percentile_bucket(percent) for percent in PERCENTILES.values()])
    series = [_SecondSeries(buckets[:, number], [], []) for number in range(len(names))]
    for table in by_second:
        for number, rows in _rows_of_groups(table, keys, names):
            series[number].add(rows)
    lows, highs = np.zeros(buckets.shape, np.int64), np.zeros(buckets.shape, np.int64)
    reasons: Reasons = {}
    for number, name in enumerate(names):
        found = series[number].intervals()
        for row, (percentile, percent) in enumerate(PERCENTILES.items()):
            match found[row]:
                case RankInterval(low, high):
                    lows[row, number], highs[row, number] = low, high
                case reason if groups.reported(percent)[number]:
                    reasons.setdefault(name, {})[percentile] = reason
    ends = {percentile: (lows[row], highs[row]) for row, percentile in enumerate(PERCENTILES)}
    return IntervalStatistics(groups.statistics(ends), reasons)


@dataclass(frozen=True)
class _SecondSeries:
    """The samples of one group, second by second: all, and those beyond the bucket of each percentile."""

    buckets: Int64s
    samples: list[Int64s]
    beyond: list[Int64s]

    def add(self, rows: pa.Table) -> None:
        _, second = np.unique(rows[SECOND].to_numpy(), return_inverse=True)
        bucket, count = rows[BUCKET].to_numpy(), rows[COUNT].to_numpy()
        self.samples.append(np.bincount(second, count).astype(np.int64))
        # A bucket may hold many samples: count those in it and beyond it, too, and see which is closer.
        above = [np.bincount(second, count * (bucket > edge)) for edge in (*self.buckets, *(self.buckets - 1))]
        self.beyond.append(np.array(above, np.int64))

    def intervals(self) -> list[RankInterval | str]:
        samples, both = np.concatenate(self.samples), np.concatenate(self.beyond, axis=1)
        without, within = np.split(both, 2)
        wanted = samples.sum() * (1 - np.array(list(PERCENTILES.values())) / 100)
        closer = wanted - without.sum(axis=1) <= within.sum(axis=1) - wanted
        beyond = np.where(closer[:, None], without, within)
        return rank_intervals(samples, beyond, list(PERCENTILES.values()))


def _rows_of_groups(table: pa.Table, keys: list[str], names: list[tuple[str, ...]]) -> Iterator[tuple[int, pa.Table]]:
    for number, name in enumerate(names):
        mask = pc.equal(table[keys[0]], name[0])
        for key, value in zip(keys[1:], name[1:], strict=True):
            mask = pc.and_(mask, pc.equal(table[key], value))
        if (rows := table.select([SECOND, BUCKET, COUNT]).filter(mask)).num_rows:
            yield number, rows
