"""Do the residuals fit the model, or do they ask for logarithms?

What repeats differ by should be normal and equally wide at every point. Times and rates often vary by a share of their
value instead, and then factors multiply; on a logarithmic scale they add up again. The power transformations of Box and
Cox (Journal of the Royal Statistical Society B 26, 1964) decide. Plain arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crescendo.model.arrays import Floats

LEAST_FREEDOM = 4
"""With fewer repeats beyond the first of each point, nothing is said about their distribution."""

_CHI_SQUARED_95 = 3.841
_POWERS = np.linspace(-2, 2, 81)


@dataclass(frozen=True)
class Residual:
    """One repeat: the mean of its point, its distance from it, and that of a normal one of the same rank."""

    fitted: float
    residual: float
    normal: float


@dataclass(frozen=True)
class ScaleAdvice:
    """Whether to take logarithms, and why. `power` is the best one of Box and Cox: 1 is linear, 0 logarithmic."""

    logarithmic: bool
    reason: str
    power: float | None = None


def residuals_of(values: Sequence[Sequence[float]]) -> list[Residual]:
    """Of every repeat, sorted by size."""
    from scipy.special import ndtri

    pairs = [(float(np.mean(each)), value - float(np.mean(each))) for each in values for value in each]
    ranked = sorted(pairs, key=lambda pair: pair[1])
    return [
        Residual(fitted, residual, float(ndtri((rank + 0.5) / len(ranked))))
        for rank, (fitted, residual) in enumerate(ranked)
    ]


def scale_advice(values: Sequence[Sequence[float]]) -> ScaleAdvice:
    """Logarithms are asked for if the linear scale is unlikely and the logarithmic one is not."""
    groups = [np.asarray(each, float) for each in values if len(each) > 1]
    freedom = sum(len(each) - 1 for each in groups)
    if freedom < LEAST_FREEDOM:
        return ScaleAdvice(False, "too few repeats to judge the residuals")
    if min(float(each.min()) for each in groups) <= 0:
        return ScaleAdvice(False, "a value of zero or less has no logarithm")
    likelihood = np.array([_likelihood(groups, freedom, power) for power in _POWERS])
    if not np.isfinite(likelihood).all():
        return ScaleAdvice(False, "the repeats do not vary")
    best = float(likelihood.max())
    linear, logarithmic = (float(_likelihood(groups, freedom, power)) for power in (1.0, 0.0))
    power = float(_POWERS[int(likelihood.argmax())])
    if 2 * (best - linear) <= _CHI_SQUARED_95:
        return ScaleAdvice(False, "the residuals are equally wide everywhere, as far as the repeats show", power)
    if 2 * (best - logarithmic) <= _CHI_SQUARED_95:
        return ScaleAdvice(True, "the residuals grow with the values, so factors multiply", power)
    return ScaleAdvice(False, "the residuals are not equally wide, and logarithms would not make them so", power)


def _likelihood(groups: Sequence[Floats], freedom: int, power: float) -> float:
    """The logarithm of the likelihood of a power, up to a constant; by degrees of freedom, as repeats are few."""
    # Relative to their geometric mean: a power of some nanoseconds has no digits left to differ in.
    middle = float(np.exp(np.log(np.concatenate(groups)).mean()))
    squares = 0.0
    for each in groups:
        scaled = np.log(each / middle) if abs(power) < 1e-9 else ((each / middle) ** power - 1) / power
        squares += float(((scaled - scaled.mean()) ** 2).sum())
    return -freedom / 2 * float(np.log(squares / freedom)) if squares > 0 else float("inf")
