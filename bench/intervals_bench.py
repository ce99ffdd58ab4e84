"""Do the intervals of percentiles cover the true ones?

Simulates queues at several loads and lengths and counts how often an interval is given, how often it contains the true
percentile, and how wide it is. `CRESCENDO_BENCH_REPEATS` sets the repetitions, 2,000 by default.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from bench.queue_simulation import Floats, SimulatedSystem
from crescendo.model.histogram import bucket_ceiling, bucket_of
from crescendo.model.metrics import PERCENTILES, SAMPLES_BEYOND
from crescendo.pipeline.latency.percentile_intervals import RankInterval, rank_intervals
from crescendo.pipeline.latency.quantiles import ranks

LOADS = (0.3, 0.5, 0.8, 0.9, 0.95)
LENGTHS_S = (10, 60, 300)
SHOWN = ("p50", "p90", "p99", "p99.9")
SYSTEMS = [
    *(SimulatedSystem("M/M/1", load) for load in LOADS),
    *(SimulatedSystem("M/G/1", load) for load in LOADS),
    SimulatedSystem("independent", 0.8),
    SimulatedSystem("stalls", 0.8),
]
_BATCH = 100


def main() -> int:
    repeats = int(os.environ.get("CRESCENDO_BENCH_REPEATS", "2000"))
    print("share of runs with an interval, its coverage, its median width relative to the percentile\n")
    print(f"| system | load | length | relaxation times | {' | '.join(SHOWN)} |")
    print(f"|---|---|---|---|{'---|' * len(SHOWN)}")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        batches = -(-repeats // _BATCH)
        for number, system in enumerate(SYSTEMS):
            jobs = [pool.submit(observations, system, (number, batch)) for batch in range(batches)]
            found = np.concatenate([job.result() for job in jobs])[:repeats]
            for line in rows(system, found):
                print(line, flush=True)
    return 0


def rows(system: SimulatedSystem, found: Floats) -> Iterator[str]:
    for position, length in enumerate(LENGTHS_S):
        cells = []
        for name in SHOWN:
            covered, width = found[:, position, list(PERCENTILES).index(name)].T
            given = ~np.isnan(width)
            text = f"{covered[given].mean():.1%}, ±{np.median(width[given]) / 2:.1%}" if given.any() else "–"
            cells.append(f"{given.mean():.0%}: {text}" if given.any() else "none")
        times = "∞" if not system.relaxation_s else f"{length / system.relaxation_s:,.0f}"
        yield f"| {system.kind} | {system.load} | {length} s | {times} | {' | '.join(cells)} |"


def observations(system: SimulatedSystem, seed: tuple[int, int]) -> Floats:
    """For each run, length and percentile: whether the interval contains the true one, and its relative width."""
    random, percents = np.random.default_rng(seed), list(PERCENTILES.values())
    true_ns = system.percentiles(np.array(percents) / 100) * 1e9
    found = np.full((_BATCH, len(LENGTHS_S), len(percents), 2), np.nan)
    for number in range(_BATCH):
        arrived, latency = system.run(max(LENGTHS_S), random)
        starts = np.searchsorted(arrived, np.arange(max(LENGTHS_S) + 1))
        bucket = bucket_of((latency * 1e9).astype(np.int64))
        for position, length in enumerate(LENGTHS_S):
            found[number, position] = observed(bucket[: starts[length]], starts[: length + 1], percents, true_ns)
    return found


def observed(bucket: np.ndarray, starts: np.ndarray, percents: list[float], true_ns: Floats) -> Floats:
    found = np.full((len(percents), 2), np.nan)
    cumulative, total = np.cumsum(np.bincount(bucket)), np.array([bucket.size])
    at = [int(np.searchsorted(cumulative, ranks(total, percent)[0])) for percent in percents]
    beyond = np.array([np.add.reduceat((bucket > edge).astype(np.int64), starts[:-1]) for edge in at])
    for row, interval in enumerate(rank_intervals(np.diff(starts), beyond, percents)):
        enough = total[0] - ranks(total, percents[row])[0] >= SAMPLES_BEYOND
        if isinstance(interval, RankInterval) and enough:
            low, high = (int(np.searchsorted(cumulative, rank)) for rank in (interval.low, interval.high))
            low_ns, high_ns = bucket_ceiling(low - 1) + 1, bucket_ceiling(high)
            found[row] = low_ns <= true_ns[row] <= high_ns, (high_ns - low_ns) / true_ns[row]
    return found


if __name__ == "__main__":
    sys.exit(main())
