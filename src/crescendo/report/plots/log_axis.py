"""How are times and rates labelled on a logarithmic axis?

With round numbers, written as elsewhere on the page. Such an axis does not zoom, so its labels always fit. Draws
nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from crescendo.model.units import format_ns
from crescendo.report import formats

_NS_PER_S = 1e9
_TICK_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
"""Multiples of powers of ten to label, from coarse to fine. The coarsest that gives enough labels is used."""


def log_axis(title: str, traces: list[dict[str, Any]], side: str) -> dict[str, Any]:
    """An axis of times in seconds, around everything that the traces draw on this side."""
    axis: dict[str, Any] = {"title": {"text": title}, "type": "log", "fixedrange": True}
    drawn = [value for trace in traces for value in trace[side] if value is not None]
    if not drawn:
        return axis
    low, high = math.log10(min(drawn)), math.log10(max(drawn))
    margin = max(0.06 * (high - low), 0.04)
    low, high = low - margin, high + (2.5 * margin if side == "y" else margin)  # room for the phase names
    ticks = _round_numbers(low, high, 4)
    if len(ticks) < 2:  # the values are nearly equal, and no round number is near
        ticks = sorted({min(drawn), max(drawn)})
    names = [format_ns(round(tick * _NS_PER_S, 3)) for tick in ticks]
    return axis | {"range": [low, high], "tickvals": ticks, "ticktext": names}


def rate_axis(title: str, rates: Sequence[float]) -> dict[str, Any]:
    """An axis of messages per second, around these rates."""
    return value_axis(f"{title}, msg/s", rates, formats.rate)


def value_axis(title: str, values: Sequence[float], written: Callable[[float], str]) -> dict[str, Any]:
    """An axis around these values, all of them above zero."""
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.06 * (high - low), 0.04)
    ticks = _round_numbers(low - margin, high + margin, 3)
    if len(ticks) < 2:
        ticks = sorted({min(values), max(values)})
    return {
        "title": {"text": title},
        "type": "log",
        "fixedrange": True,
        "range": [low - margin, high + margin],
        "tickvals": ticks,
        "ticktext": [written(tick) for tick in ticks],
        "tickangle": 0,
    }


def _round_numbers(low: float, high: float, at_least: int) -> list[float]:
    """Round numbers between two powers of ten: the coarsest that are `at_least` as many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    ladders = [[step * 10.0**power for power in powers for step in steps] for steps in _TICK_STEPS]
    ladders = [[tick for tick in ladder if low <= math.log10(tick) <= high] for ladder in ladders]
    return next((ladder for ladder in ladders if len(ladder) >= at_least), ladders[-1])
