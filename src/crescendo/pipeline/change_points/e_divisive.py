"""When did a series of runs change?

E-divisive means (Matteson and James, Journal of the American Statistical Association 109, 2014): a split is placed
where the energy distance between both sides is largest, and each side is split again. Student's t-test decides whether
a split counts, instead of permutations, so that the same series always gives the same answer, as in Hunter (arXiv
2301.03034). Plain arithmetic: knows nothing of runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crescendo.model.arrays import Floats

P_VALUE = 0.001
"""A split counts if chance alone would show it less often. bench/history_bench.py prints what that means per run."""

LEAST_RUNS = 2
"""On each side of a split: one run alone may be an outlier."""


@dataclass(frozen=True)
class ChangePoint:
    """The first value after a change, the means before and after it up to the neighbouring changes, and its p-value."""

    index: int
    before: float
    after: float
    p_value: float


def change_points(values: Sequence[float], p_value: float = P_VALUE) -> list[ChangePoint]:
    """The changes of a series, in its order."""
    series = np.asarray(values, np.float64)
    found = _kept(series, sorted(_splits(series, 0, len(series), p_value)), p_value)
    return [_described(series, found, at) for at in range(len(found))]


def _splits(series: Floats, start: int, end: int, p_value: float) -> list[int]:
    """The places at which a segment is split, in any order."""
    split = best_split(series[start:end])
    if split is None:
        return []
    middle, until = start + split[0], start + split[1]
    if t_test(series[start:middle], series[middle:until]) >= p_value:
        return []
    return [middle, *_splits(series, start, middle, p_value), *_splits(series, middle, end, p_value)]


def _kept(series: Floats, found: list[int], p_value: float) -> list[int]:
    """Without splits that later ones have made doubtful, the weakest first."""
    while found:
        ends = [0, *found, len(series)]
        parts = [series[first:last] for first, last in pairwise(ends)]
        chances = [t_test(before, after) for before, after in pairwise(parts)]
        worst = int(np.argmax(chances))
        if chances[worst] < p_value:
            return found
        found = [*found[:worst], *found[worst + 1 :]]
    return found


def _described(series: Floats, found: Sequence[int], at: int) -> ChangePoint:
    ends = [0, *found, len(series)]
    before, after = series[ends[at] : ends[at + 1]], series[ends[at + 1] : ends[at + 2]]
    return ChangePoint(found[at], float(before.mean()), float(after.mean()), t_test(before, after))


def best_split(values: Floats) -> tuple[int, int] | None:
    """Where the energy statistic of two adjacent parts is largest, and where the second one ends.

    The first part begins with the series. None if it is too short for two parts.
    """
    count = len(values)
    if count < 2 * LEAST_RUNS:
        return None
    # Sums of all distances within values[:i] × values[:j], so that any block is four look-ups.
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = np.abs(values[:, None] - values[None, :]).cumsum(axis=0).cumsum(axis=1)
    best, place = -math.inf, (0, 0)
    for middle in range(LEAST_RUNS, count - LEAST_RUNS + 1):
        ends = np.arange(middle + LEAST_RUNS, count + 1)
        left, right = float(middle), (ends - middle).astype(np.float64)
        across = sums[middle, ends] - sums[middle, middle]
        within_left = sums[middle, middle]
        within_right = sums[ends, ends] - 2 * sums[middle, ends] + sums[middle, middle]
        energy = 2 * across / (left * right) - within_left / (left * (left - 1)) - within_right / (right * (right - 1))
        statistic = energy * left * right / (left + right)
        if statistic.max() > best:
            best, place = float(statistic.max()), (middle, int(ends[statistic.argmax()]))
    return place


def t_test(before: Floats, after: Floats) -> float:
    """The two-sided p-value of Student's t-test. The variance is pooled: a side with two runs says little about it."""
    from scipy.special import stdtr

    freedom = len(before) + len(after) - 2
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    gap = abs(float(after.mean() - before.mean()))
    if freedom < 1 or not gap:
        return 1.0
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return 0.0 if not error else float(2 * stdtr(freedom, -gap / error))
