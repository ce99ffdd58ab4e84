"""How soon does a gate see a change, and how often does it see one that is not there?

Simulates series of runs with a given deviation from run to run, drops the rate by a given share, and counts in how many
series the change points find the drop within three runs. The same without a drop gives the false alarms per run.
`CRESCENDO_BENCH_REPEATS` sets the series per cell, 1,000 by default.
"""

import os
import sys

import numpy as np

from crescendo.pipeline.change_points.e_divisive import change_points

NOISES = (0.005, 0.01, 0.02, 0.05)
DROPS = (0.02, 0.05, 0.10, 0.20)
EARLIER, WITHIN = 15, 3
LONGEST = 30


def main() -> int:
    repeats = int(os.environ.get("CRESCENDO_BENCH_REPEATS", "1000"))
    random = np.random.default_rng(1)
    titles = " | ".join(f"drop {drop:.0%}" for drop in DROPS)
    print(f"found within {WITHIN} runs, after {EARLIER} good ones; false alarms per run; {repeats} series each\n")
    print(f"| from run to run | {titles} | false alarms per run |")
    print(f"|---|{'---|' * (len(DROPS) + 1)}")
    for noise in NOISES:
        found = [detected(random, noise, drop, repeats) for drop in DROPS]
        alarms = false_alarms(random, noise, max(repeats // 5, 1))
        print(f"| {noise:.1%} | {' | '.join(f'{share:.1%}' for share in found)} | {alarms:.2%} |", flush=True)
    return 0


def detected(random: np.random.Generator, noise: float, drop: float, repeats: int) -> float:
    """The share of series in which a change at the drop, or one run beside it, is found."""
    count = 0
    for _ in range(repeats):
        levels = np.concatenate([np.ones(EARLIER), np.full(WITHIN, 1 - drop)])
        series = np.log(levels * np.exp(random.normal(0, noise, EARLIER + WITHIN)))
        count += any(each.index >= EARLIER - 1 and each.after < each.before for each in change_points(series.tolist()))
    return count / repeats


def false_alarms(random: np.random.Generator, noise: float, repeats: int) -> float:
    """How often the next run of a series without any change makes a new change point appear."""
    alarms = runs = 0
    for _ in range(repeats):
        series = random.normal(0, noise, LONGEST)
        before = 0
        for count in range(6, LONGEST + 1):
            now = len(change_points(series[:count].tolist()))
            alarms += now > before
            before, runs = now, runs + 1
    return alarms / runs


if __name__ == "__main__":
    sys.exit(main())
