"""How is a chart over time laid out, so that all of them can be read together?

Every such chart has the same seconds on its axis, shades the phases that are not judged and names them where there is
room. Also what all charts share: a line, and numbers that JSON can carry. Knows nothing of what the lines mean.
"""

import html
import math
from dataclasses import dataclass
from typing import Any

from crescendo.record.manifest import Phase
from crescendo.report.data.tables import RateSeries
from crescendo.report.plots import series
from crescendo.report.sections.evidence import phase_name

Figure = dict[str, Any]
Span = tuple[str, float, float]
"""Name, start and end of a phase, in seconds from the start of the first one."""

_LABELLED_SHARE = 0.12  # a narrower phase has no room for its name on a phone


@dataclass(frozen=True)
class Chart:
    """A figure, what it shows in words, and what a reader should know about it."""

    figure: Figure
    label: str
    notes: list[str]


def spans_of(phases: list[Phase]) -> list[Span]:
    if not phases:
        return []
    origin_ns = phases[0].start_ns
    return [
        (phase.name, (phase.start_ns - origin_ns) / series.NS_PER_S, (phase.end_ns - origin_ns) / series.NS_PER_S)
        for phase in phases
    ]


def extent_of(timeline: RateSeries) -> tuple[float, float]:
    return float(timeline.first_second), float(timeline.first_second + timeline.bins * timeline.bin_seconds)


def over_time(extent: tuple[float, float], spans: list[Span], y_axis: dict[str, Any]) -> dict[str, Any]:
    """The layout of a chart over time; all such charts cover the same seconds, so that they can be zoomed together."""
    start, end = extent
    shapes, labels = [], []
    for name, first, last in _visible(spans, start, end):
        if name != "measure":
            shapes.append(band(first, last))
        if last - first >= _LABELLED_SHARE * (end - start):
            labels.append({"x": (first + last) / 2, "text": phase_name(name)})
    x_axis = {"title": {"text": "seconds since the first phase began"}, "range": [start, end], "ticksuffix": " s"}
    return {"xaxis": x_axis, "yaxis": y_axis, "shapes": shapes, "annotations": labels, "hovermode": "x unified"}


def band(first: float, last: float) -> dict[str, Any]:
    """Seconds that are shaded from top to bottom."""
    return {"type": "rect", "xref": "x", "yref": "paper", "x0": first, "x1": last, "y0": 0, "y1": 1}


def time_notes(timeline: RateSeries, spans: list[Span]) -> list[str]:
    notes = []
    unjudged = [phase_name(name) for name, _, _ in _visible(spans, *extent_of(timeline)) if name != "measure"]
    if unjudged:
        notes.append(f"Shaded: {' and '.join(unjudged)}, not judged.")
    if timeline.bin_seconds > 1:
        notes.append(f"Each point covers {timeline.bin_seconds} s.")
    return notes


def line(name: str, x: Any, y: Any, tone: str, *, hover: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) < 4 else "lines",  # a line through one point is invisible
        "name": name,
        "x": _plain(x),
        "y": _plain(y),
        "line": {"dash": dash, "width": 2},
        "marker": {"size": 5},
        "meta": {"tone": tone},
        "hovertemplate": f"{hover}<extra>{name}</extra>",
    }


def plot_name(name: str, longest: int = 40) -> str:
    """A name that fits a legend, in which plotly finds no markup. Its ends tell names apart."""
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 :]}"
    return html.escape(name, quote=False)


def _visible(spans: list[Span], start: float, end: float) -> list[Span]:
    # A drain phase is as long as it was allowed to be; the charts end with the last message.
    clipped = [(name, max(first, start), min(last, end)) for name, first, last in spans]
    return [span for span in clipped if span[2] > span[1]]


def _plain(values: Any) -> list[float | None]:
    """Six digits are more than a screen has; NaN is a gap, and JSON has no NaN."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
