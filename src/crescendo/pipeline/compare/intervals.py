"""What is the confidence interval of a mean, or of a difference of means?

Student's t distribution for any number of degrees of freedom, integer or not, and Welch's interval for a difference of
means. A single value against several is judged by the variance of the several. Pure arithmetic on floats.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

CONFIDENCE = 0.95
_PRECISION = 1e-9
_STEPS = 200


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
    """The value that |t| exceeds with a probability of 5 %, by bisection."""
    low, high = 0.0, 1.0
    while _probability_within(high, dof) < CONFIDENCE:
        high *= 2
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, dof) < CONFIDENCE else (low, middle)
    return high


def _probability_within(t: float, dof: float) -> float:
    """The probability of a value between -t and t."""
    return 1 - _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x in {0.0, 1.0}:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    ) / a  # fmt: skip
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    total = d
    for m in range(1, _STEPS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + factor * d or tiny)
            c = 1 + factor / c or tiny
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total
