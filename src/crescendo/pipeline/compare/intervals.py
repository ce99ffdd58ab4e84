"""What is the confidence interval of a mean, or of a difference of means?

Student's interval for a mean, and Welch's for a difference of means. A single value against several is judged by the
variance of the several. SciPy is imported when there is an interval to compute. Pure arithmetic on floats.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The interval of the mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    half_width = t_quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))
    return Interval(fmean(values), fmean(values) - half_width, fmean(values) + half_width)


def difference(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The interval of the mean of `after` minus the mean of `before`; None if neither side has two values."""
    if len(before) < 2 and len(after) < 2:
        return None
    gap = fmean(after) - fmean(before)
    if min(len(before), len(after)) < 2:
        several = max(before, after, key=len)
        spread, dof = variance(several) * (1 + 1 / len(several)), float(len(several) - 1)
    else:
        one, other = variance(before) / len(before), variance(after) / len(after)
        spread = one + other
        parts = one**2 / (len(before) - 1) + other**2 / (len(after) - 1)
        dof = spread**2 / parts if parts else 1.0
    half_width = t_quantile(dof) * math.sqrt(spread)
    return Interval(gap, gap - half_width, gap + half_width)


def t_quantile(dof: float) -> float:
    """The value that |t| exceeds with a probability of 5 %, for any number of degrees of freedom, integer or not."""
    from scipy.special import stdtrit

    return float(stdtrit(dof, (1 + CONFIDENCE) / 2))
