"""Which effects stand out when nothing was repeated?

Lenth's method (R. V. Lenth, Technometrics 31, 1989): most effects are small, so their median shows the error. Plain
arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from crescendo.model.arrays import Floats
from crescendo.pipeline.compare.intervals import CONFIDENCE, t_quantile


@dataclass(frozen=True)
class LenthMargin:
    """An effect beyond `margin` is unlikely to be error; one beyond `simultaneous` even as the largest of many."""

    pseudo_error: float
    margin: float
    simultaneous: float


def lenth_margin(effects: Floats) -> LenthMargin:
    """The margins of error of these effects; all of them, the mean excluded."""
    sizes = np.abs(effects)
    first = 1.5 * float(np.median(sizes))
    error = 1.5 * float(np.median(sizes[sizes < 2.5 * first])) if first else 0.0
    freedom = len(sizes) / 3
    all_at_once = CONFIDENCE ** (1 / len(sizes))
    return LenthMargin(error, t_quantile(freedom) * error, t_quantile(freedom, all_at_once) * error)
