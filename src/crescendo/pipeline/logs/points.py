"""Which values does a plot of windows show?

Each type becomes one line of points, with error bars for response times. A window without samples interrupts its line.
A last window that the logs cover only in part has no meaningful rate, so throughput omits it. Draws nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from crescendo.model.errors import ConfigError
from crescendo.pipeline.logs.windows import HIGH_BAR, LOW_BAR, MEDIAN, Sample, Slot

MAX_POINTS, MAX_TYPES = 5_000, 12
Show = Literal["response", "throughput"]
Centre = Literal["median", "mean"]
Bars = Literal["percentile", "stddev"]

_NS_PER_S, _MS_NS = 10**9, 10**6
_NAN = math.nan


@dataclass
class PlotLine:
    """The points of one type; NaN where there is none, or where a point has no bar."""

    seconds: list[float] = field(default_factory=list)  # since the first window
    middles: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(not math.isnan(middle) for middle in self.middles)


def plot_lines(slots: Sequence[Slot], show: Show, centre: Centre, bars: Bars) -> dict[str, PlotLine]:
    """One line per type, in the order of their first window. Refuses more than a plot can show."""
    lines: dict[str, PlotLine] = {}
    origin_ns = min(slot.start_ns for slot in slots)
    for slot in slots:
        line = lines.setdefault(slot.type, PlotLine())
        middle, low, high = _rate(slot) if show == "throughput" else _response_ms(slot.sample, centre, bars)
        line.seconds.append((slot.start_ns - origin_ns) / _NS_PER_S)
        line.middles.append(middle)
        line.lows.append(low)
        line.highs.append(high)
    _check_size(lines)
    return lines


def _check_size(lines: dict[str, PlotLine]) -> None:
    points = sum(line.points for line in lines.values())
    if len(lines) > MAX_TYPES:
        raise ConfigError(f"--type: {len(lines)} lines are too many for a plot; draw at most {MAX_TYPES} at a time")
    if points > MAX_POINTS:
        raise ConfigError(
            f"--window: {points:,} points are too many for a plot; choose a longer window, "
            f"so that there are at most {MAX_POINTS:,}"
        )
    if not points:
        raise ConfigError("--window: the logs are shorter than one window, so there is no rate; choose a shorter one")


def _rate(slot: Slot) -> tuple[float, float, float]:
    count = slot.sample.count if slot.sample else 0
    return count * _NS_PER_S / slot.length_ns if slot.whole else _NAN, _NAN, _NAN


def _response_ms(sample: Sample | None, centre: Centre, bars: Bars) -> tuple[float, float, float]:
    if sample is None:
        return _NAN, _NAN, _NAN
    middle = (sample.percentiles_ns[MEDIAN] if centre == "median" else sample.mean_ns) / _MS_NS
    if bars == "percentile":
        return middle, sample.percentiles_ns[LOW_BAR] / _MS_NS, sample.percentiles_ns[HIGH_BAR] / _MS_NS
    if sample.deviation_ns is None:
        return middle, _NAN, _NAN
    return middle, middle - sample.deviation_ns / _MS_NS, middle + sample.deviation_ns / _MS_NS
