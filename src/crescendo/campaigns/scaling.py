"""How do throughput and latency follow a factor that is a number?

For every factor with four or more levels: laws of scalability through each throughput, and the knee of each latency.
Where another factor varies too, only its first level counts, because one curve is about one system. The arithmetic is
in `pipeline.queueing`.
"""

import math
from statistics import fmean

import numpy as np

from crescendo.model.campaign import READING, SPAN
from crescendo.model.metrics import RATE, find_metric, split_metric
from crescendo.pipeline.queueing.latency_knee import LEAST_LOADS, latency_knee
from crescendo.pipeline.queueing.scalability_laws import LEAST_SIZES, ScalabilityFit, fit_amdahl, fit_usl
from crescendo.record.campaign_effects import FittedLaw, LoadKnee, ScalingCurve
from crescendo.record.campaign_journal import CampaignJournal

POINTS_DRAWN = 60
_LAWS = {"usl": fit_usl, "amdahl": fit_amdahl}


def scaling_curves(journal: CampaignJournal) -> list[ScalingCurve]:
    """One curve per factor with enough numbers and per throughput."""
    found = []
    for number, factor in enumerate(journal.factors):
        for metric in filter(is_throughput, journal.metrics):
            values = values_by_level(journal, number, metric)
            if len(values) >= LEAST_SIZES:
                found.append(_curve(factor.name, metric, values))
    return found


def load_knees(journal: CampaignJournal) -> list[LoadKnee]:
    """One knee per factor with enough numbers and per latency, if the campaign also measured the rate."""
    found = []
    for number, factor in enumerate(journal.factors):
        rates = values_by_level(journal, number, RATE)
        for metric in filter(is_latency, journal.metrics):
            latencies = values_by_level(journal, number, metric)
            loads = [load for load in latencies if load in rates]
            if len(loads) < LEAST_LOADS:
                continue
            x, y = [fmean(rates[load]) for load in loads], [fmean(latencies[load]) for load in loads]
            if min(*x, *y) > 0:
                knee = latency_knee(loads, x, y)
                found.append(LoadKnee(factor.name, metric, loads, x, y, knee.load, knee.warning))
    return found


def values_by_level(journal: CampaignJournal, factor: int, metric: str) -> dict[float, list[float]]:
    """The values at each level of a factor, in the order of the levels; empty unless all levels are numbers."""
    levels = [_number(point.levels[factor]) for point in journal.points]
    if any(level is None for level in levels):
        return {}
    found: dict[float, list[float]] = {}
    for point, values, level in zip(journal.points, journal.values_of(metric), levels, strict=True):
        others = [share for at, share in enumerate(point.row) if at != factor]
        if level is not None and values and not any(others):
            found.setdefault(level, []).extend(values)
    return dict(sorted(found.items()))


def is_throughput(metric: str) -> bool:
    return (metric.startswith(SPAN) and metric.endswith(".count")) or split_metric(metric)[1] == RATE


def is_latency(metric: str) -> bool:
    if metric.startswith((SPAN, READING)):
        return metric.startswith(SPAN) and not metric.endswith(".count")
    known = find_metric(split_metric(metric)[1])
    return known is not None and known.latency is not None


def _curve(factor: str, metric: str, values: dict[float, list[float]]) -> ScalingCurve:
    pairs = [(size, value) for size, each in values.items() for value in each]
    sizes, throughputs = [size for size, _ in pairs], [value for _, value in pairs]
    # Laws count from one unit of size: a load of 1,000 to 8,000 msg/s is 1 to 8 units.
    unit = min(sizes) if min(sizes) > 0 else 1.0
    laws, reason = [], ""
    for name, fit in _LAWS.items():
        try:
            laws.append(_law(name, fit(sizes, throughputs, unit), sizes))
        except (ValueError, RuntimeError) as err:  # RuntimeError: the fit did not converge
            reason = str(err)
    return ScalingCurve(factor, metric, list(values), list(values.values()), laws, reason)


def _law(name: str, fit: ScalabilityFit, sizes: list[float]) -> FittedLaw:
    drawn = np.linspace(min(sizes), max(sizes), POINTS_DRAWN)
    return FittedLaw(
        name,
        {key: (each.value, each.low, each.high) for key, each in fit.coefficients.items()},
        fit.residual_share,
        fit.peak,
        list(fit.warnings),
        [(float(size), fit.throughput(float(size))) for size in drawn],
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
