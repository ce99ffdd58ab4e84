"""How are the values of a metric labelled on a linear axis? With round numbers, written as elsewhere on the page."""

import math
from collections.abc import Sequence
from typing import Any

from crescendo.model.campaign import format_metric
from crescendo.report.formats import metric_title
from crescendo.report.plots.time_axis import plot_name


def value_axis(metric: str, values: Sequence[float], *, title: str = "") -> dict[str, Any]:
    """An axis around these values of a metric."""
    ticks = round_ticks(values)
    return {
        "title": {"text": plot_name(title or metric_title(metric))},
        "tickvals": ticks,
        "ticktext": [format_metric(metric, tick) for tick in ticks],
        "fixedrange": True,
    }


def round_ticks(values: Sequence[float]) -> list[float]:
    """About five round numbers over these values."""
    low, high = min(values), max(values)
    if low == high:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    first = math.floor(low / step)
    return [step * at for at in range(first, math.ceil(high / step) + 1)]
