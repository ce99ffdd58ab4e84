"""Intervals of percentiles against simulated queues whose true percentiles are known.

`make bench ARGS=intervals` measures many more cells.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from crescendo.model.histogram import bucket_ceiling, bucket_of
from crescendo.model.metrics import PERCENTILES
from crescendo.pipeline.latency.interval_statistics import interval_statistics
from crescendo.pipeline.latency.percentile_intervals import RankInterval, rank_intervals

SERVICES_PER_S = 250.0
REPEATS = 150
PERCENTS = list(PERCENTILES.values())
Floats = npt.NDArray[np.float64]


def queue(load: float, seconds: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Arrival times and times in the system of an M/M/1 queue that starts in its steady state."""
    messages = int(load * SERVICES_PER_S * seconds * 1.1) + 1000
    gaps = random.standard_exponential(messages) / (load * SERVICES_PER_S)
    served = random.standard_exponential(messages) / SERVICES_PER_S
    ahead = random.exponential(1 / (SERVICES_PER_S * (1 - load))) if random.random() < load else 0.0
    work = np.concatenate([[ahead], ahead + np.cumsum(served[:-1] - gaps[1:])])
    latency = work - np.minimum(np.minimum.accumulate(work), 0.0) + served
    arrived = np.cumsum(gaps)
    inside = arrived < seconds
    return arrived[inside], latency[inside]


def outcomes(load: float, seconds: int) -> Iterator[list[bool | None]]:
    """For each run and percentile, whether the interval holds the true one; None where there is no interval."""
    random = np.random.default_rng(7)
    for _ in range(REPEATS):
        arrived, latency = queue(load, seconds, random)
        ordered = np.sort(latency)
        starts = np.searchsorted(arrived, np.arange(seconds))
        values = [ordered[math.ceil(latency.size * percent / 100) - 1] for percent in PERCENTS]
        beyond = np.array([np.add.reduceat((latency > value).astype(np.int64), starts) for value in values])
        found = rank_intervals(np.diff(starts, append=latency.size), beyond, PERCENTS)
        true = [-math.log(1 - percent / 100) / (SERVICES_PER_S * (1 - load)) for percent in PERCENTS]
        yield [
            bool(ordered[interval.low - 1] <= value <= ordered[interval.high - 1])
            if isinstance(interval, RankInterval)
            else None
            for interval, value in zip(found, true, strict=True)
        ]


@pytest.mark.parametrize(("load", "seconds", "name", "given"), [(0.8, 200, "p90", 0.9), (0.5, 200, "p99", 0.8)])
def test_an_interval_covers_the_true_percentile_of_a_queue(load: float, seconds: int, name: str, given: float) -> None:
    row = list(PERCENTILES).index(name)
    held = [found[row] for found in outcomes(load, seconds) if found[row] is not None]
    assert len(held) >= given * REPEATS
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize("relaxation_times", [15, 40])
def test_a_run_shorter_than_fifty_relaxation_times_has_no_interval(relaxation_times: int) -> None:
    relaxation_s = 1 / (SERVICES_PER_S * (1 - math.sqrt(0.95)) ** 2)
    found = [[held is None for held in each] for each in outcomes(0.95, round(relaxation_times * relaxation_s))]
    assert np.mean(found) >= 0.99


def test_a_reason_says_what_is_missing() -> None:
    random = np.random.default_rng(1)
    few = rank_intervals(np.full(9, 100), np.full((6, 9), 1), PERCENTS)
    assert set(few) == {"fewer than 10 seconds"}
    wave = np.repeat(random.integers(0, 100, 6), 10)  # ten seconds alike at a time
    assert "relaxation times" in str(rank_intervals(np.full(60, 100), np.array([wave] * 6), PERCENTS)[0])
    steady = random.binomial(1000, 1 - np.array(PERCENTS)[:, None] / 100, (6, 60))
    found = rank_intervals(np.full(60, 1000), steady, PERCENTS)
    assert isinstance(found[0], RankInterval)
    assert found[-1] == "too few independent samples beyond it"


def test_one_second_full_of_slow_messages_is_one_observation() -> None:
    """All samples beyond the p99 lie in a single second: how often such a second comes is unknown."""
    beyond = np.random.default_rng(1).binomial(1000, 1 - np.array(PERCENTS)[:, None] / 100, (6, 60))
    beyond[3:] = 0
    beyond[3, 30], beyond[4, 30], beyond[5, 30] = 600, 60, 6
    found = rank_intervals(np.full(60, 1000), beyond, PERCENTS)
    assert isinstance(found[2], RankInterval)
    assert not any(isinstance(each, RankInterval) for each in found[3:])


def by_second(samples: dict[str, list[Floats]]) -> pa.Table:
    rows = []
    for kind, seconds in samples.items():
        for second, values in enumerate(seconds):
            for bucket, count in zip(*np.unique(bucket_of(values.astype(np.int64)), return_counts=True), strict=True):
                inside = values[bucket_of(values.astype(np.int64)) == bucket].astype(np.int64)
                row = {"kind": kind, "second": second, "bucket": int(bucket), "count": int(count)}
                ends = {"sum_ns": int(inside.sum()), "min_ns": int(inside.min()), "max_ns": int(inside.max())}
                rows.append(row | ends)
    return pa.Table.from_pylist(rows)


def test_intervals_of_bucket_counts_are_those_of_the_samples() -> None:
    random = np.random.default_rng(2)
    samples = {
        "response": [random.lognormal(10, 0.5, 1000) for _ in range(40)],
        "constant": [np.full(100, 5000.0) for _ in range(40)],
    }
    table = by_second(samples)
    halves = [table.filter(pa.compute.field("second") < 25), table.filter(pa.compute.field("second") >= 25)]
    found = interval_statistics(table, ["kind"], halves)
    rows = {row["kind"]: row for row in found.table.to_pylist()}
    ordered = np.sort(np.concatenate(samples["response"]))
    bucket = bucket_of(ordered.astype(np.int64))
    edges = [bucket_ceiling(int(bucket[math.ceil(bucket.size * percent / 100) - 1])) for percent in PERCENTS]
    counts = np.array([[(values >= edge + 1).sum() for values in samples["response"]] for edge in edges])
    expected = rank_intervals(np.full(40, 1000), counts, PERCENTS)
    for name, interval in zip(PERCENTILES, expected, strict=True):
        ends = rows["response"][f"{name}_low"], rows["response"][f"{name}_high"]
        if isinstance(interval, RankInterval):
            assert ends == pytest.approx((ordered[interval.low - 1], ordered[interval.high - 1]), rel=0.03)
            assert name not in found.reasons.get(("response",), {})
        else:
            assert ends == (None, None)
    assert not found.reasons
    assert (rows["constant"]["p50_low"], rows["constant"]["p50_high"]) == (5000, 5000)
