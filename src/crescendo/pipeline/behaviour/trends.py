"""Does a series settle, and does it drift?

MSER-5 finds where a warm-up should end, the test of Mann and Kendall whether values tend to rise or fall, and the
slope of Theil and Sen by how much. None of them assumes a distribution, and a stray value moves none of them far.
Pure arithmetic on arrays without gaps; what the values are, and how much drift is too much, is not known here.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BATCH = 5
LEAST_BATCHES = 4
LEAST_SAMPLES = 8
"""Fewer values than this have no significant trend whatever they do, or nearly so."""


@dataclass(frozen=True)
class Trend:
    """The result of Mann's and Kendall's test, and the slope a sample with its 95 % interval."""

    s: int
    z: float
    p: float
    slope: float
    slope_low: float
    slope_high: float


def mser5(values: Floats) -> int | None:
    """How many samples to cut off the beginning, a multiple of five; None when the series never settles.

    Batches of five are averaged, and the cut is where the standard error of the mean of what remains is smallest. In
    the second half that is an accident of few values: there is then no steady state.
    """
    batches = values[: values.size // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1)
    if batches.size < LEAST_BATCHES:
        return None
    errors = [float(rest.var()) / rest.size for cut in range(batches.size - 1) for rest in (batches[cut:],)]
    best = int(np.argmin(errors))
    return best * BATCH if best <= batches.size // 2 else None


def trend(values: Floats) -> Trend | None:
    """None when there are too few values."""
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
    # After Sen: so many ranks on either side of the middle.
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
