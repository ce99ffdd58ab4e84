"""How far apart are two sides, given how much their values vary?

Intervals from Student's and Welch's t-distribution (B. L. Welch, Biometrika 34, 1947), at any confidence. Plain
arithmetic: knows nothing of latencies, runs or outcomes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval."""

    value: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    half_width = t_quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Interval(fmean(values), fmean(values) - half_width, fmean(values) + half_width)


def difference(
    before: Sequence[float],
    after: Sequence[float],
    confidence: float = CONFIDENCE,
    least_variances: tuple[float, float] = (0.0, 0.0),
) -> Interval | None:
    """The interval of the mean of `after` minus the mean of `before`; None if neither side has two values.

    A side varies at least by its least variance, however close its values happen to be.
    """
    if len(before) < 2 and len(after) < 2:
        return None
    gap = fmean(after) - fmean(before)
    if min(len(before), len(after)) < 2:
        several = max(before, after, key=len)
        spread = max(variance(several), *least_variances) * (1 + 1 / len(several))
        dof = float(len(several) - 1)
    else:
        one = max(variance(before), least_variances[0]) / len(before)
        other = max(variance(after), least_variances[1]) / len(after)
        spread = one + other
        parts = one**2 / (len(before) - 1) + other**2 / (len(after) - 1)
        dof = spread**2 / parts if parts else 1.0
    half_width = t_quantile(dof, confidence) * math.sqrt(spread)
    return Interval(gap, gap - half_width, gap + half_width)


def t_quantile(dof: float, confidence: float = CONFIDENCE) -> float:
    """The value that |t| exceeds with a probability of 1 - confidence, for any number of degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(dof, (1 + confidence) / 2))


def each_confidence(comparisons: int) -> float:
    """The confidence that each of several intervals needs so that all of them hold at once with 95 % (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / max(comparisons, 1)
