"""How does throughput grow with load or size, and where does it end?

Fits the Universal Scalability Law (Gunther 1993) and Amdahl's law to measured throughput, with 95 % intervals. Warns
where the data do not carry what the curve says beyond them. Predicts nothing without saying so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crescendo.model.arrays import Floats
from crescendo.pipeline.compare.intervals import t_quantile

CONTENTION, COHERENCY, UNIT = "contention", "coherency", "one"
LEAST_SIZES = 4


@dataclass(frozen=True)
class Coefficient:
    """A fitted number and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScalabilityFit:
    """X(n) = one · n / (1 + contention · (n - 1) + coherency · n · (n - 1)); Amdahl's law has no coherency.

    n counts in units: a load of 1,000 to 8,000 messages per second may be 1 to 8 units.
    """

    coefficients: dict[str, Coefficient]
    peak: float | None  # the size with the highest throughput; None if the curve only rises
    residual_share: float  # deviation of the residuals, relative to the mean throughput
    warnings: tuple[str, ...]
    unit: float = 1.0

    def throughput(self, size: float) -> float:
        value = {name: each.value for name, each in self.coefficients.items()}
        size /= self.unit
        below = 1 + value[CONTENTION] * (size - 1) + value.get(COHERENCY, 0.0) * size * (size - 1)
        return value[UNIT] * size / below


def fit_usl(sizes: Sequence[float], throughputs: Sequence[float], unit: float = 1.0) -> ScalabilityFit:
    """The Universal Scalability Law: contention limits growth, coherency reverses it."""
    return _fit(sizes, throughputs, (UNIT, CONTENTION, COHERENCY), unit)


def fit_amdahl(sizes: Sequence[float], throughputs: Sequence[float], unit: float = 1.0) -> ScalabilityFit:
    """Amdahl's law: a share of the work is serial."""
    return _fit(sizes, throughputs, (UNIT, CONTENTION), unit)


def _fit(sizes: Sequence[float], throughputs: Sequence[float], names: tuple[str, ...], unit: float) -> ScalabilityFit:
    from scipy.optimize import curve_fit

    n, x = np.asarray(sizes, np.float64) / unit, np.asarray(throughputs, np.float64)
    if len(set(sizes)) < LEAST_SIZES or len(n) <= len(names):
        raise ValueError(f"a fit needs {LEAST_SIZES} or more different sizes, and {len(set(sizes))} were measured")
    if n.min() < 1 or min(throughputs) <= 0:
        raise ValueError("sizes start at one unit, and throughputs are above 0")
    start = [float((x / n).max()), 0.05, 0.001][: len(names)]
    upper = [np.inf, 1.0, 1.0][: len(names)]
    found, covariance = curve_fit(_law, n, x, p0=start, bounds=([0.0] * len(names), upper), x_scale=start)
    freedom = len(n) - len(names)
    half = t_quantile(freedom) * np.sqrt(np.diag(covariance))
    coefficients = {
        name: Coefficient(float(value), float(value - width), float(value + width))
        for name, value, width in zip(names, found, half, strict=True)
    }
    residuals = x - _law(n, *found)
    spread = math.sqrt(float(residuals @ residuals) / freedom) / float(x.mean())
    peak = _peak(coefficients)
    at = None if peak is None else peak * unit
    return ScalabilityFit(coefficients, at, spread, tuple(_warnings(coefficients, at, max(sizes), spread)), unit)


def _law(n: Floats, one: float, contention: float, coherency: float = 0.0) -> Floats:
    curve: Floats = one * n / (1 + contention * (n - 1) + coherency * n * (n - 1))
    return curve


def _peak(coefficients: dict[str, Coefficient]) -> float | None:
    coherency = coefficients[COHERENCY].value if COHERENCY in coefficients else 0.0
    if coherency <= 1e-12:
        return None
    return math.sqrt(max(1 - coefficients[CONTENTION].value, 0.0) / coherency)


def _warnings(coefficients: dict[str, Coefficient], peak: float | None, largest: float, spread: float) -> list[str]:
    found = []
    if peak is not None and peak > largest:
        found.append(
            f"the peak at {peak:,.0f} lies beyond the largest size that was measured, {largest:,.0f}: "
            "measure further before relying on it"
        )
    for name in (CONTENTION, COHERENCY):
        each = coefficients.get(name)
        if each is not None and each.low <= 0 < each.high:
            found.append(f"the data do not show any {name}: its interval includes 0")
    if spread > 0.1:
        found.append(f"the residuals are {spread:.0%} of the mean throughput: the law does not describe these data")
    return found
