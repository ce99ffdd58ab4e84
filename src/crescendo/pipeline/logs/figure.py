"""How are windows laid out as a plot?

Each type becomes one line with error bars, between two axes with round numbers. The result is a list of strokes and
labels on a canvas of fixed size; `eps` and `png` render it. A window without samples interrupts its line. A last window
that the logs cover only in part has no meaningful rate, so throughput omits it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crescendo.model.errors import ConfigError
from crescendo.pipeline.logs.windows import HIGH_BAR, LOW_BAR, MEDIAN, Sample, Slot

WIDTH, HEIGHT = 1000, 700
MAX_POINTS, MAX_TYPES = 5_000, 12
Show = Literal["response", "throughput"]
Centre = Literal["median", "mean"]
Bars = Literal["percentile", "stddev"]
Colour = tuple[int, int, int]
Position = tuple[float, float]

BLACK: Colour = (30, 30, 30)
_GREY: Colour = (215, 215, 215)
# The Okabe-Ito palette, which colour-blind readers can distinguish.
_COLOURS: tuple[Colour, ...] = (
    (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233),
)  # fmt: skip
_LEFT, _RIGHT, _BOTTOM, _UPPER = 90, 975, 70, 645
_ROW = 18
_OFFSET = 3
"""Lines are shifted by this much, so that their bars do not hide each other."""
_TICKS = 8
_NS_PER_S, _MS_NS = 10**9, 10**6


@dataclass(frozen=True)
class Stroke:
    """A line through these positions. A single position is a dot."""

    positions: tuple[Position, ...]
    colour: Colour
    width: float


@dataclass(frozen=True)
class Label:
    """Text. `x` and `y` are the start, middle or end of its baseline."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"
    upright: bool = False  # rotated, reads from bottom to top


@dataclass(frozen=True)
class Drawing:
    """Strokes and labels on a canvas of WIDTH by HEIGHT, with the origin at the lower left."""

    strokes: tuple[Stroke, ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class _Scale:
    """Maps values to positions on the canvas."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.first) / (self.last - self.first) * (self.end - self.start)


def draw(slots: Sequence[Slot], show: Show, centre: Centre, bars: Bars) -> Drawing:
    """One line per type, in the order of their first window."""
    lines: dict[str, list[Point | None]] = {}
    origin_ns = min(slot.start_ns for slot in slots)
    for slot in slots:
        lines.setdefault(slot.type, []).append(_point(slot, origin_ns, show, centre, bars))
    points = _checked(lines)
    x_ticks = ticks(0.0, max(point.x for point in points))
    lowest = min(value for point in points for value in (point.y, point.low) if value is not None)
    highest = max(value for point in points for value in (point.y, point.high) if value is not None)
    y_ticks = ticks(min(lowest, 0.0), highest)
    top = _UPPER - _ROW * len(lines)  # the legend is above the frame
    x, y = _Scale(x_ticks[0], x_ticks[-1], _LEFT, _RIGHT), _Scale(y_ticks[0], y_ticks[-1], _BOTTOM, top)
    strokes, labels = _frame(x_ticks, y_ticks, x, y)
    labels += _titles(show, centre, bars)
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        strokes += _line(line, x, y, colour, offset=_OFFSET * (number - (len(lines) - 1) / 2))
        row = _UPPER - _ROW * number
        strokes.append(Stroke(((_RIGHT - 28, row - 1), (_RIGHT, row - 1)), colour, 2))
        labels.append(Label(_RIGHT - 36, row - 6, name, "end"))
    return Drawing(tuple(strokes), tuple(labels))


def _checked(lines: dict[str, list[Point | None]]) -> list[Point]:
    """All points. Refuses more than a plot can show."""
    points = [point for line in lines.values() for point in line if point is not None]
    if len(lines) > MAX_TYPES:
        raise ConfigError(f"--type: {len(lines)} lines are too many for a plot; draw at most {MAX_TYPES} at a time")
    if len(points) > MAX_POINTS:
        raise ConfigError(
            f"--window: {len(points):,} points are too many for a plot; choose a longer window, "
            f"so that there are at most {MAX_POINTS:,}"
        )
    if not points:
        raise ConfigError("--window: the logs are shorter than one window, so there is no rate; choose a shorter one")
    return points


def ticks(low: float, high: float) -> list[float]:
    """Evenly spaced round numbers that enclose both values."""
    spread = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(spread / _TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if spread / (factor * power) <= _TICKS)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [number * step for number in range(first, last + 1)]


def _point(slot: Slot, origin_ns: int, show: Show, centre: Centre, bars: Bars) -> Point | None:
    seconds = (slot.start_ns - origin_ns) / _NS_PER_S
    if show == "throughput":
        count = slot.sample.count if slot.sample else 0
        return Point(seconds, count * _NS_PER_S / slot.length_ns) if slot.whole else None
    return None if slot.sample is None else _response(seconds, slot.sample, centre, bars)


def _response(seconds: float, sample: Sample, centre: Centre, bars: Bars) -> Point:
    middle_ns = sample.percentiles_ns[MEDIAN] if centre == "median" else sample.mean_ns
    if bars == "percentile":
        low_ns, high_ns = sample.percentiles_ns[LOW_BAR], sample.percentiles_ns[HIGH_BAR]
    elif sample.deviation_ns is None:
        return Point(seconds, middle_ns / _MS_NS)
    else:
        low_ns, high_ns = middle_ns - sample.deviation_ns, middle_ns + sample.deviation_ns
    return Point(seconds, middle_ns / _MS_NS, low_ns / _MS_NS, high_ns / _MS_NS)


def _titles(show: Show, centre: Centre, bars: Bars) -> list[Label]:
    spread = f"bars from {LOW_BAR} % to {HIGH_BAR} %" if bars == "percentile" else "bars of one standard deviation"
    title = "Throughput" if show == "throughput" else f"Response time: {centre}, {spread}"
    unit = "actions per second" if show == "throughput" else "milliseconds"
    return [
        Label(WIDTH / 2, HEIGHT - 30, title),
        Label((_LEFT + _RIGHT) / 2, 20, "seconds"),
        Label(24, (_BOTTOM + _UPPER) / 2, unit, upright=True),
    ]


def _frame(x_ticks: list[float], y_ticks: list[float], x: _Scale, y: _Scale) -> tuple[list[Stroke], list[Label]]:
    strokes, labels = [], []
    for value in x_ticks:
        strokes.append(Stroke(((x(value), _BOTTOM), (x(value), y.end)), _GREY, 1))
        labels.append(Label(x(value), _BOTTOM - 22, f"{value:,.10g}"))
    for value in y_ticks:
        strokes.append(Stroke(((_LEFT, y(value)), (_RIGHT, y(value))), _GREY, 1))
        labels.append(Label(_LEFT - 8, y(value) - 5, f"{value:,.10g}", "end"))
    strokes.append(Stroke(((_LEFT, y.end), (_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)), BLACK, 1.5))
    return strokes, labels


def _line(line: list[Point | None], x: _Scale, y: _Scale, colour: Colour, offset: float) -> list[Stroke]:
    bars, dots = [], []
    segments: list[list[Position]] = [[]]
    for point in line:
        if point is None:
            segments.append([])
            continue
        position = x(point.x) + offset, y(point.y)
        segments[-1].append(position)
        dots.append(Stroke((position,), colour, 6))
        if point.low is not None and point.high is not None:
            bars += [Stroke(positions, colour, 1) for positions in _bar(position[0], y(point.low), y(point.high))]
    return bars + [Stroke(tuple(segment), colour, 2) for segment in segments if segment] + dots


def _bar(x: float, low: float, high: float) -> list[tuple[Position, ...]]:
    return [((x, low), (x, high)), ((x - 4, low), (x + 4, low)), ((x - 4, high), (x + 4, high))]
