"""How are charts over time laid out, so that they can be read together?

Every chart over time covers the same seconds, shades the phases that are not judged, the outages and the faults, and
labels phases if there is room.
Also holds what all charts share: a line trace, and numbers that JSON can represent. Does not know what the lines mean.
"""

import html
import math
from dataclasses import dataclass
from typing import Any

from crescendo.record.manifest import Phase
from crescendo.record.timeline import RunTimeline
from crescendo.report.data.chart_tables import TimeBins
from crescendo.report.sections.evidence import phase_name

Figure = dict[str, Any]
PhaseSpan = tuple[str, float, float]
"""Name, start and end of a phase, in seconds from the start of the first phase."""

_LABELLED_SHARE = 0.12  # of the width; on a phone a narrower phase has no room for its name
_SEEN_APART = 1 / 500  # of the width; nearer outages are drawn as one


@dataclass(frozen=True)
class Chart:
    """A figure, its text description, and notes for the reader."""

    figure: Figure
    label: str
    notes: list[str]


def phase_spans(phases: list[Phase]) -> list[PhaseSpan]:
    timeline = RunTimeline.of(phases)
    return [
        (phase.name, timeline.seconds_since_start(phase.start_ns), timeline.seconds_since_start(phase.end_ns))
        for phase in timeline.phases
    ]


@dataclass(frozen=True)
class TimeAxis:
    """What all charts over time share: the seconds that they cover, the phases, the outages and the faults."""

    extent: tuple[float, float]
    spans: list[PhaseSpan]
    outages: list[tuple[float, float]]  # start and end, in seconds since the start of the first phase
    bin_seconds: int = 1
    faults: tuple[tuple[float, float], ...] = ()

    def layout(self, y_axis: dict[str, Any]) -> dict[str, Any]:
        layout = time_layout(self.extent, self.spans, y_axis)
        start, end = self.extent
        for first, last in merged(self.outages, (end - start) * _SEEN_APART):
            layout["shapes"].append(band(first, last) | {"name": "outage"})
        for first, last in merged(list(self.faults), (end - start) * _SEEN_APART):
            layout["shapes"].append(band(first, last) | {"name": "fault"})
        return layout

    def notes(self) -> list[str]:
        unjudged = [phase_name(name) for name, _, _ in _visible(self.spans, *self.extent) if name != "measure"]
        notes = [f"Shaded: {' and '.join(unjudged)}, not judged."] if unjudged else []
        if self.outages:
            notes.append("Red: outages.")
        if self.faults:
            notes.append("Framed: faults.")
        if self.bin_seconds > 1:
            notes.append(f"Each point covers {self.bin_seconds} s.")
        return notes

    def measured(self) -> tuple[float, float] | None:
        """Where the bounds of checks apply."""
        return next(((start, end) for name, start, end in self.spans if name == "measure"), None)

    def loaded_until(self) -> float | None:
        """When the last message is due; None without a phase in which messages are sent."""
        return max((end for name, _, end in self.spans if name != "drain"), default=None)


def merged(intervals: list[tuple[float, float]], apart: float) -> list[tuple[float, float]]:
    """The union of intervals, in order; those that are less than `apart` from each other become one."""
    found: list[tuple[float, float]] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + apart:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def time_extent(time_bins: TimeBins) -> tuple[float, float]:
    return float(time_bins.first_second), float(time_bins.first_second + time_bins.bins * time_bins.bin_seconds)


def time_layout(extent: tuple[float, float], spans: list[PhaseSpan], y_axis: dict[str, Any]) -> dict[str, Any]:
    """The layout of a chart over time. All of them cover the same seconds, so that they zoom together."""
    start, end = extent
    shapes, labels = [], []
    for name, first, last in _visible(spans, start, end):
        if name != "measure":
            shapes.append(band(first, last))
        if last - first >= _LABELLED_SHARE * (end - start):
            labels.append({"x": (first + last) / 2, "text": phase_name(name)})
    x_axis = {"title": {"text": "time since the start of the first phase"}, "range": [start, end], "ticksuffix": " s"}
    return {"xaxis": x_axis, "yaxis": y_axis, "shapes": shapes, "annotations": labels, "hovermode": "x unified"}


def band(first: float, last: float) -> dict[str, Any]:
    """A time interval, shaded from top to bottom."""
    return {"type": "rect", "xref": "x", "yref": "paper", "x0": first, "x1": last, "y0": 0, "y1": 1}


def bound_line(name: str, axis: TimeAxis, limit: float, hover: str) -> dict[str, Any] | None:
    """The bound of a check, where it applies; None if nothing is judged."""
    ends = axis.measured()
    if ends is None:
        return None
    trace = line(name, ends, [limit, limit], "fail", hover=hover, dash="9px,3px,2px,3px")
    trace["mode"] = "lines"
    trace["line"]["width"] = 1.5
    return trace


def line(name: str, x: Any, y: Any, tone: str, *, hover: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) < 4 else "lines",  # a line through one point is invisible
        "name": name,
        "x": _json_numbers(x),
        "y": _json_numbers(y),
        "line": {"dash": dash, "width": 2},
        "marker": {"size": 5},
        "meta": {"tone": tone},
        "hovertemplate": f"{hover}<extra>{name}</extra>",
    }


def plot_name(name: str, longest: int = 40) -> str:
    """A name short enough for a legend and escaped for plotly. Keeps both ends, which distinguish names."""
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 :]}"
    return html.escape(name, quote=False)


def _visible(spans: list[PhaseSpan], start: float, end: float) -> list[PhaseSpan]:
    # The drain phase is as long as its timeout; the charts end with the last message.
    clipped = [(name, max(first, start), min(last, end)) for name, first, last in spans]
    return [span for span in clipped if span[2] > span[1]]


def _json_numbers(values: Any) -> list[float | None]:
    """Six digits are enough for a screen. NaN becomes null, a gap in the line, because JSON has no NaN."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
