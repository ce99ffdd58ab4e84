"""What does each chart show?

Builds plain plotly figures (data and layout) from series. Colours are not chosen here: a trace names its `tone`, and
the page's style sheet maps it to a colour, so that charts follow the theme. Every figure has a text description for
readers who cannot see it. A chart without data is None, not an empty frame.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from crescendo.model.metrics import LATENCY_KINDS
from crescendo.model.units import format_ns
from crescendo.record.manifest import Phase
from crescendo.report import formats
from crescendo.report.data.chart_tables import Tables
from crescendo.report.plots import series
from crescendo.report.plots.time_axis import Chart, line, phase_spans, time_extent, time_layout, time_notes

KIND_TONES = dict(zip(LATENCY_KINDS, ("blue", "orange", "green"), strict=True))
_DASHES = dict(zip(LATENCY_KINDS, ("solid", "dash", "dot"), strict=True))
_TICK_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
"""Multiples of powers of ten to label, from coarse to fine. The coarsest that gives four labels is used."""


def rate_chart(tables: Tables, phases: list[Phase], offered: float) -> Chart | None:
    time_bins = tables.time_bins
    if time_bins is None or not tables.messages:
        return None
    x = series.bin_centres(time_bins)
    traces, descriptions = [], []
    for role, name, tone in (("sender", "sent", "blue"), ("receiver", "received", "orange")):
        if role in tables.messages:
            y = series.rates(tables.messages[role], time_bins)
            # Sent and received usually coincide: the dashes let the line below show through.
            dash = "solid" if role == "sender" else "7px,4px"
            traces.append(line(name, x, y, tone, hover="%{y:,.0f} msg/s", dash=dash))
            traces[-1]["line"]["shape"] = "hvh"  # a second without messages shows as a step to zero, not as a dip
            descriptions.append(f"{name} between {formats.rate(y.min())} and {formats.rate(y.max())}")
    spans = phase_spans(phases)
    loaded = [(start, end) for name, start, end in spans if name != "drain"]
    if offered and loaded:
        ends = [loaded[0][0], loaded[-1][1]]
        traces.append(line("offered", ends, [offered, offered], "muted", hover="%{y:,.0f} msg/s", dash="4px,4px"))
        traces[-1]["mode"] = "lines"
        descriptions.append(f"offered {formats.rate(offered)}")
    top = max(value for trace in traces for value in trace["y"] if value is not None)
    # Headroom for the phase names above the lines.
    y_range = [0, max(top, 1.0) * 1.18]
    y_axis = {"title": {"text": "messages per second"}, "range": y_range, "tickformat": "~s", "fixedrange": True}
    figure = {"data": traces, "layout": time_layout(time_extent(time_bins), spans, y_axis)}
    label = f"Messages per second over time: {'; '.join(descriptions)}."
    return Chart(figure, label, time_notes(time_bins, spans))


def latency_chart(tables: Tables, phases: list[Phase]) -> Chart | None:
    kind = judged_kind(tables)
    if tables.time_bins is None or kind is None:
        return None
    lines = series.latency_lines(tables.over_time[kind], tables.time_bins)
    x = series.bin_centres(tables.time_bins)
    traces = [
        line(name, x, _on_log_axis(y), tone, hover="%{y:.3s}s", dash=dash)
        for name, y, tone, dash in (
            ("max", lines.max_s, "purple", "2px,2px"),
            ("p99", lines.p99_s, "orange", "solid"),
            ("p50", lines.p50_s, "blue", "solid"),
        )
    ]
    y_axis = _latency_axis(f"{kind} latency", traces, "y")
    spans = phase_spans(phases)
    notes = time_notes(tables.time_bins, spans)
    withheld = int((np.isnan(lines.p99_s) & ~np.isnan(lines.max_s)).sum())
    if withheld:
        of = int((~np.isnan(lines.max_s)).sum())
        notes.append(f"p99 is omitted at {withheld:,} of {of:,} points: fewer than 10 samples lie beyond it there.")
    worst = format_ns(float(np.nanmax(lines.max_s)) * series.NS_PER_S)
    label = f"{kind.capitalize()} latency per second as p50, p99 and maximum; the worst message took {worst}."
    return Chart({"data": traces, "layout": time_layout(time_extent(tables.time_bins), spans, y_axis)}, label, notes)


def spectrum_chart(tables: Tables) -> Chart | None:
    traces, descriptions, furthest = [], [], 0.0
    for kind in _kinds(tables):
        points = series.spectrum(tables.measured[kind])
        if points.nines.size:
            hover = "%{customdata:.5~f} %: %{y:.3s}s"
            y = _on_log_axis(points.latency_s)
            traces.append(line(kind, points.nines, y, KIND_TONES[kind], hover=hover, dash=_DASHES[kind]))
            traces[-1]["customdata"] = [round(float(percent), 7) for percent in points.percent]
            furthest = max(furthest, float(points.nines[-1]))
            descriptions.append(f"{kind} reaches {format_ns(float(points.latency_s[-1]) * series.NS_PER_S)}")
    if not traces:
        return None
    ticks = [math.log10(2), *map(float, range(1, math.floor(furthest) + 1))]
    axis = {
        "title": {"text": "percentile, on a scale of nines"},
        "tickvals": ticks,
        "ticktext": ["50", *(_nines(int(tick)) for tick in ticks[1:])],
        "tickangle": 0,
        "range": [0, furthest * 1.02],
    }
    layout = {"xaxis": axis, "yaxis": _latency_axis("latency", traces, "y"), "hovermode": "closest"}
    notes = ["Measure phase. Each line ends where fewer than 10 samples are left beyond it."]
    return Chart({"data": traces, "layout": layout}, f"Latency by percentile: {'; '.join(descriptions)}.", notes)


def histogram_chart(tables: Tables) -> Chart | None:
    traces, notes, descriptions = [], ["Measure phase. Bars are equally wide on the logarithmic axis."], []
    outlines = series.densities({kind: tables.measured[kind] for kind in _kinds(tables)})
    for kind, bars in outlines.items():
        if bars.below_scale:
            count = formats.plural(bars.below_scale, f"{kind} sample")
            notes.append(f"{count} at or below zero (clock error) cannot be shown on this axis.")
        if bars.edges_s.size:
            hover = "%{x:.3s}s: %{y:.2%}"
            traces.append(line(kind, bars.edges_s, bars.share, KIND_TONES[kind], hover=hover, dash=_DASHES[kind]))
            traces[-1]["line"]["shape"] = "hv"
            traces[-1]["fill"] = "tozeroy"
            mode = format_ns(float(bars.edges_s[int(bars.share.argmax())]) * series.NS_PER_S)
            descriptions.append(f"{kind} is most often near {mode}")
    if not traces:
        return None
    y_axis = {"title": {"text": "share of messages"}, "tickformat": "~%", "rangemode": "tozero", "fixedrange": True}
    layout = {"xaxis": _latency_axis("latency", traces, "x"), "yaxis": y_axis, "hovermode": "closest"}
    return Chart({"data": traces, "layout": layout}, f"Distribution of latency: {'; '.join(descriptions)}.", notes)


def judged_kind(tables: Tables) -> str | None:
    """Response if messages had intended times, otherwise transfer."""
    return next((kind for kind in ("response", "transfer") if kind in tables.over_time), None)


def _kinds(tables: Tables) -> list[str]:
    return [kind for kind in LATENCY_KINDS if kind in tables.measured]


def _latency_axis(title: str, traces: list[dict[str, Any]], side: str) -> dict[str, Any]:
    """A logarithmic axis with times formatted as elsewhere on the page. It does not zoom, so its labels always fit."""
    axis: dict[str, Any] = {"title": {"text": title}, "type": "log", "fixedrange": True}
    drawn = [value for trace in traces for value in trace[side] if value is not None]
    if not drawn:
        return axis
    low, high = math.log10(min(drawn)), math.log10(max(drawn))
    margin = max(0.06 * (high - low), 0.04)
    low, high = low - margin, high + (2.5 * margin if side == "y" else margin)  # room for the phase names
    powers = range(math.floor(low), math.ceil(high) + 1)
    ladders = [[step * 10.0**power for power in powers for step in steps] for steps in _TICK_STEPS]
    ladders = [[tick for tick in ladder if low <= math.log10(tick) <= high] for ladder in ladders]
    ticks = next((ladder for ladder in ladders if len(ladder) >= 4), ladders[-1])
    if len(ticks) < 2:  # the values are nearly equal, and no round number is near
        ticks = sorted({min(drawn), max(drawn)})
    names = [format_ns(round(tick * series.NS_PER_S, 3)) for tick in ticks]
    return axis | {"range": [low, high], "tickvals": ticks, "ticktext": names}


def _on_log_axis(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(values > 0, values, np.nan)


def _nines(tick: int) -> str:
    return f"{100 - 10.0 ** (2 - tick):.{max(tick - 2, 0)}f}"
