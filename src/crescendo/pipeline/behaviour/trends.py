"""Does a series settle, and does it drift?

MSER-5 finds where a warm-up should end, the Mann-Kendall test finds whether values tend to rise or fall, and the
Theil-Sen slope says by how much. None of them assumes a distribution, and all are robust against outliers. Pure
arithmetic on arrays without gaps; the meaning of the values and the tolerable drift are not known here.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from crescendo.model.arrays import Floats

BATCH = 5
LEAST_BATCHES = 4
LEAST_SAMPLES = 8
"""With fewer values, hardly any trend can be significant."""


@dataclass(frozen=True)
class Trend:
    """The result of the Mann-Kendall test, and the slope per sample with its 95 % interval."""

    s: int
    z: float
    p: float
    slope: float
    slope_low: float
    slope_high: float


def mser5(values: Floats) -> int | None:
    """How many samples to cut off at the start, a multiple of five; None if the series never settles.

    Batches of five are averaged. The cut is where the standard error of the mean of the remaining batches is smallest.
    A minimum in the second half is an artefact of few values: then there is no steady state.
    """
    batches = values[: values.size // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1)
    if batches.size < LEAST_BATCHES:
        return None
    errors = [float(rest.var()) / rest.size for cut in range(batches.size - 1) for rest in (batches[cut:],)]
    best = int(np.argmin(errors))
    return best * BATCH if best <= batches.size // 2 else None


def trend(values: Floats) -> Trend | None:
    """None if there are too few values."""
    n = values.size
    if n < LEAST_SAMPLES:
        return None
    later, earlier = np.triu_indices(n, 1)[::-1]
    differences = values[later] - values[earlier]
    s = int(np.sign(differences).sum())
    ties = np.unique(values, return_counts=True)[1].astype(np.float64)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    z = (s - np.sign(s)) / variance**0.5 if variance > 0 else 0.0
    slopes = np.sort(differences / (later - earlier))
    # Sen's confidence interval: this many ranks around the median slope.
    width = NormalDist().inv_cdf(0.975) * max(variance, 0.0) ** 0.5
    low = min(max(round((slopes.size - width) / 2) - 1, 0), slopes.size - 1)
    high = min(max(round((slopes.size + width) / 2), 0), slopes.size - 1)
    return Trend(
        s=s,
        z=float(z),
        p=2 * NormalDist().cdf(-abs(float(z))),
        slope=float(np.median(slopes)),
        slope_low=float(slopes[low]),
        slope_high=float(slopes[high]),
    )
