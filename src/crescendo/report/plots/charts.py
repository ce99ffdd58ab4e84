"""What does each chart show?

Builds plain plotly figures (data and layout) from series. Colours are not chosen here: a trace names its `tone`, and
the page's style sheet maps it to a colour, so that charts follow the theme. Every figure has a text description for
readers who cannot see it. A chart without data is None, not an empty frame.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Floats
from crescendo.model.metrics import LATENCY_KINDS, PERCENTILES, RATE, find_metric, split_metric
from crescendo.model.units import format_ns
from crescendo.model.verdict import Check
from crescendo.report import formats
from crescendo.report.data.chart_tables import Tables, TimeBins
from crescendo.report.plots import series
from crescendo.report.plots.log_axis import log_axis
from crescendo.report.plots.time_axis import Chart, TimeAxis, bound_line, line

KIND_TONES = dict(zip(LATENCY_KINDS, ("blue", "orange", "green"), strict=True))
_DASHES = dict(zip(LATENCY_KINDS, ("solid", "dash", "dot"), strict=True))


def rate_chart(
    tables: Tables, axis: TimeAxis, offered: Floats | None, checks: list[Check], fan_out: float
) -> Chart | None:
    """`offered` is the rate that the schedule asks for in each bin; `fan_out` is how often a message is delivered."""
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
    if offered is not None and np.isfinite(offered).any():
        traces.append(line("offered", x, offered, "muted", hover="%{y:,.0f} msg/s", dash="4px,4px"))
        traces[-1]["line"]["shape"] = "hvh"
        low, high = formats.rate(np.nanmin(offered)), formats.rate(np.nanmax(offered))
        descriptions.append(f"offered {low}" if low == high else f"offered between {low} and {high}")
    for check in checks:
        if check.metric == RATE and check.limit > 0:
            name = f"bound {formats.bound(check.bound)}"
            descriptions.append(f"the bound is {formats.rate(check.limit)}")
            traces += filter(None, [bound_line(name, axis, check.limit, "%{y:,.0f} msg/s")])
    top = max(value for trace in traces for value in trace["y"] if value is not None)
    # Headroom for the phase names above the lines.
    y_range = [0, max(top, 1.0) * 1.18]
    y_axis = {"title": {"text": "messages per second"}, "range": y_range, "tickformat": "~s", "fixedrange": True}
    notes = axis.notes()
    if fan_out > 1:
        notes.append(f"Received counts every copy: each message is delivered {fan_out:.3g} times.")
    label = f"Messages per second over time: {'; '.join(descriptions)}."
    return Chart({"data": traces, "layout": axis.layout(y_axis)}, label, notes)


def offered_rate(time_bins: TimeBins, axis: TimeAxis, due: Callable[[Floats], Floats | None]) -> Floats | None:
    """Messages per second that were due in each bin, NaN where none are sent any more; None if that is unknown.

    `due` is the number of messages that were due by each second.
    """
    until = axis.loaded_until()
    if until is None:
        return None
    edges = time_bins.first_second + np.arange(time_bins.bins + 1, dtype=np.float64) * time_bins.bin_seconds
    messages = due(np.clip(edges, 0, until))
    if messages is None:
        return None
    seconds = np.diff(np.clip(edges, 0, until))
    rate = np.full(seconds.shape, np.nan)
    np.divide(np.diff(messages), seconds, out=rate, where=seconds > 0)
    return rate


def latency_chart(tables: Tables, axis: TimeAxis, checks: list[Check]) -> Chart | None:
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
    worst = format_ns(float(np.nanmax(lines.max_s)) * series.NS_PER_S)
    label = f"{kind.capitalize()} latency per second as p50, p99 and maximum; the worst message took {worst}"
    for statistic, check in _latency_bounds(checks, kind):
        name = f"bound {_slice_of(check)}{statistic} {formats.bound(check.bound)}"
        label += f"; {name}"
        traces += filter(None, [bound_line(name, axis, check.limit / series.NS_PER_S, "%{y:.3s}s")])
    y_axis = log_axis(f"{kind} latency", traces, "y")
    notes = axis.notes()
    withheld = int((np.isnan(lines.p99_s) & ~np.isnan(lines.max_s)).sum())
    if withheld:
        of = int((~np.isnan(lines.max_s)).sum())
        notes.append(f"p99 is omitted at {withheld:,} of {of:,} points: fewer than 10 samples lie beyond it there.")
    return Chart({"data": traces, "layout": axis.layout(y_axis)}, f"{label}.", notes)


def spectrum_chart(tables: Tables, checks: list[Check]) -> Chart | None:
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
    for kind in _kinds(tables):
        for statistic, check in _latency_bounds(checks, kind):
            percent = PERCENTILES.get(statistic)
            nines = 0.0 if percent is None else -math.log10(1 - percent / 100)
            if 0 < nines <= furthest:
                name = f"bound {_slice_of(check)}{kind} {statistic} {formats.bound(check.bound)}"
                traces.append(_bound_mark(name, nines, check.limit / series.NS_PER_S))
                descriptions.append(name)
    layout = {"xaxis": nines_axis(furthest), "yaxis": log_axis("latency", traces, "y"), "hovermode": "closest"}
    notes = ["Measure phase. Each line ends where fewer than 10 samples are left beyond it."]
    return Chart({"data": traces, "layout": layout}, f"Latency by percentile: {'; '.join(descriptions)}.", notes)


def nines_axis(furthest: float) -> dict[str, Any]:
    """An axis of percentiles that ends at this many nines."""
    ticks = [math.log10(2), *map(float, range(1, math.floor(furthest) + 1))]
    return {
        "title": {"text": "percentile, on a scale of nines"},
        "tickvals": ticks,
        "ticktext": ["50", *(_nines(int(tick)) for tick in ticks[1:])],
        "tickangle": 0,
        "range": [0, furthest * 1.02],
    }


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
    layout = {"xaxis": log_axis("latency", traces, "x"), "yaxis": y_axis, "hovermode": "closest"}
    return Chart({"data": traces, "layout": layout}, f"Distribution of latency: {'; '.join(descriptions)}.", notes)


def _bound_mark(name: str, nines: float, limit_s: float) -> dict[str, Any]:
    trace = line(name, [nines], [limit_s], "fail", hover="%{y:.3s}s", dash="solid")
    return trace | {"mode": "markers", "marker": {"size": 11, "symbol": "triangle-down"}}


def _latency_bounds(checks: list[Check], kind: str) -> list[tuple[str, Check]]:
    """The checks on a statistic of this kind of latency. A bound at or below zero cannot be drawn."""
    found = []
    for check in checks:
        metric = find_metric(check.metric)
        if metric is not None and metric.latency is not None and metric.latency.kind == kind and check.limit > 0:
            found.append((metric.latency.statistic, check))
    return found


def _slice_of(check: Check) -> str:
    """The group, destination or protocol that the check judges, and a colon; empty for the whole run."""
    name, _ = split_metric(check.metric)
    return f"{name}: " if name else ""


def judged_kind(tables: Tables) -> str | None:
    """Response if messages had intended times, otherwise transfer."""
    return next((kind for kind in ("response", "transfer") if kind in tables.over_time), None)


def _kinds(tables: Tables) -> list[str]:
    return [kind for kind in LATENCY_KINDS if kind in tables.measured]


def _on_log_axis(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(values > 0, values, np.nan)


def _nines(tick: int) -> str:
    return f"{100 - 10.0 ** (2 - tick):.{max(tick - 2, 0)}f}"
