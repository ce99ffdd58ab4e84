"""What happened inside the system under load?

One chart per gauge, all over the same seconds as rate and latency, with the intervals without readings tinted, and a
table of all metrics, those that changed most first and those that tell nothing last. Names the trend of a metric;
whether it is a leak is up to the reader.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crescendo.model.gauges import BYTES, CORES, COUNT, GAUGES, Gauge, gauge_of, is_clock, is_idle, unit_of
from crescendo.record.tables import ReadingSummaryRow
from crescendo.report import formats
from crescendo.report.data.chart_tables import Tables
from crescendo.report.data.reading_tables import InspectorGap, ReadingSeries, ReadingTables
from crescendo.report.plots.line_styles import LINE_STYLES, LINES_DRAWN
from crescendo.report.plots.time_axis import Chart, TimeAxis, band, line, plot_name
from crescendo.report.sections.evidence import Grid

ROWS_SHOWN = 30
ALIKE_SHOWN = 4
"""At most this many entities of one metric come first; a hundred similar queues are one fact."""
GAPS_LISTED = 5
_CLEAR_R2 = 0.8  # a straight line explains most of the variation
_CLEAR_CHANGE = 0.05  # of the mean, over the measure phase
_HOVERS = {BYTES: "%{y:.4s}B", CORES: "%{y:.2f} cores", COUNT: "%{y:,.4~g}"}


@dataclass(frozen=True)
class InspectorsSection:
    """The section of the report."""

    charts: dict[str, Chart]  # id on the page -> chart
    titles: dict[str, str]
    grid: Grid
    left_out: int
    gaps: list[str]
    listed: dict[str, ReadingSeries]  # key of a row of the table -> its readings


def inspectors_section(readings: ReadingTables, tables: Tables, axis: TimeAxis) -> InspectorsSection | None:
    """None if the run had no inspectors: then the page has no such section."""
    if not readings.summaries and not readings.gaps:
        return None
    measure_s = sum(end - start for name, start, end in axis.spans if name == "measure")
    found = {gauge: _highest(readings.summaries, gauge) for gauge in GAUGES}
    drawn = {gauge: lines for gauge in GAUGES if (lines := readings.series(found[gauge][:LINES_DRAWN]))}
    all_lines = [each for lines in drawn.values() for each in lines]
    if tables.time_bins is None:
        axis = replace(axis, extent=_extent(all_lines))
    charts = {
        f"inside-{gauge.id}": _chart(gauge, lines, len(found[gauge]), readings.gaps, axis.layout(_axis(gauge, lines)))
        for gauge, lines in drawn.items()
    }
    titles = {f"inside-{gauge.id}": gauge.title for gauge in drawn}
    ranked = _ranked(readings.summaries, measure_s)
    grid, left_out = _grid(ranked[:ROWS_SHOWN], measure_s), max(len(ranked) - ROWS_SHOWN, 0)
    listed = {_key(each.summary): each for each in readings.series(ranked[:ROWS_SHOWN])}
    return InspectorsSection(charts, titles, grid, left_out, _gap_sentences(readings.gaps), listed)


def _key(summary: ReadingSummaryRow) -> str:
    return f"{summary.source}/{summary.entity}/{summary.metric}"


def _highest(summaries: list[ReadingSummaryRow], gauge: Gauge) -> list[ReadingSummaryRow]:
    """The metrics of this gauge, the highest peaks first."""
    found = [
        summary
        for summary in summaries
        if gauge.shows(summary.entity, summary.metric) and not is_idle(summary.entity, summary.peak)
    ]
    return sorted(found, key=lambda each: (-_or_lowest(each.peak), each.entity, each.metric, each.source))


def _chart(
    gauge: Gauge, lines: list[ReadingSeries], found: int, gaps: list[InspectorGap], layout: dict[str, Any]
) -> Chart:
    names = _names([drawn.summary for drawn in lines])
    traces = [
        line(name, *_with_breaks(drawn, gaps), tone, hover=_HOVERS[gauge.unit], dash=dash)
        for name, drawn, (tone, dash) in zip(names, lines, LINE_STYLES, strict=False)
    ]
    unobserved = [gap for gap in gaps if any(gap.source == drawn.summary.source for drawn in lines)]
    end_s = layout["xaxis"]["range"][1]
    for gap in unobserved:
        layout["shapes"].append(band(gap.start_s, end_s if gap.end_s is None else gap.end_s) | {"name": "gap"})
    notes = []
    if found > len(lines):
        notes.append(f"The {len(lines)} with the highest peaks out of {found:,}.")
    if unobserved:
        notes.append("Tinted: no readings.")
    if any(shape.get("name") == "outage" for shape in layout["shapes"]):
        notes.append("Red: outages.")
    peaks = [_value(gauge.unit, float(drawn.value.max())) for drawn in lines]
    description = "; ".join(f"{name} up to {peak}" for name, peak in zip(names, peaks, strict=True))
    return Chart({"data": traces, "layout": layout}, f"{gauge.title} over time: {description}.", notes)


def _axis(gauge: Gauge, lines: list[ReadingSeries]) -> dict[str, Any]:
    top = max(1.0, *(float(drawn.value.max()) for drawn in lines))
    bottom = min(0.0, *(float(drawn.value.min()) for drawn in lines))
    # SI prefixes only for large numbers: half a core should not read 500 millicores.
    axis = {"title": {"text": gauge.axis}, "tickformat": "~s" if top >= 1000 else "~g", "fixedrange": True}
    # Headroom for the phase names above the lines.
    return axis | {"range": [bottom, top * 1.18], "ticksuffix": "B" if gauge.unit == BYTES else ""}


def _names(summaries: list[ReadingSummaryRow]) -> list[str]:
    """The shortest names that distinguish the lines of one chart."""
    metrics, sources = {each.metric for each in summaries}, {each.source for each in summaries}
    one_source = len({each.entity for each in summaries}) == len(summaries) or len(sources) == 1
    names = []
    for each in summaries:
        name = each.entity if len(metrics) == 1 else f"{each.entity} {each.metric}"
        names.append(plot_name(name if one_source else f"{name} ({each.source})"))
    return names


def _with_breaks(drawn: ReadingSeries, gaps: list[InspectorGap]) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line, interrupted where the inspector got no readings."""
    breaks = [gap.start_s for gap in gaps if gap.source == drawn.summary.source]
    positions = np.searchsorted(drawn.t_s, breaks)
    return np.insert(drawn.t_s, positions, breaks), np.insert(drawn.value.astype(float), positions, math.nan)


def _extent(lines: list[ReadingSeries]) -> tuple[float, float]:
    """The time range of a run without messages: that of its readings."""
    if not lines:
        return 0.0, 1.0
    start, end = min(float(each.t_s[0]) for each in lines), max(float(each.t_s[-1]) for each in lines)
    return start, max(end, start + 1.0)


def _ranked(summaries: list[ReadingSummaryRow], measure_s: float) -> list[ReadingSummaryRow]:
    front: list[ReadingSummaryRow] = []
    behind: list[ReadingSummaryRow] = []
    alike: dict[str, int] = {}
    for summary in sorted(summaries, key=lambda each: _rank(each, measure_s)):
        alike[summary.metric] = alike.get(summary.metric, 0) + 1
        (front if alike[summary.metric] <= ALIKE_SHOWN else behind).append(summary)
    return front + behind


def _rank(summary: ReadingSummaryRow, measure_s: float) -> tuple[int, float, float, str, str]:
    """First changing metrics of a gauge, then other changing metrics, then constant ones, then what tells nothing."""
    moved = summary.min != summary.peak
    known = gauge_of(summary.entity, summary.metric) is not None
    tier = (0 if known else 1) if moved else (2 if known else 3)
    if is_clock(summary.metric) or is_idle(summary.entity, summary.peak):
        tier = 4
    drift = abs(_change(summary, measure_s) or 0.0) * (summary.r2 or 0.0)
    return tier, -drift, -_or_lowest(summary.peak), summary.entity, summary.metric


def _change(summary: ReadingSummaryRow, measure_s: float) -> float | None:
    """The change of a metric along its trend during the measure phase, relative to its mean."""
    if summary.slope is None or not summary.mean:
        return None
    return summary.slope * measure_s / abs(summary.mean)


def _grid(summaries: list[ReadingSummaryRow], measure_s: float) -> Grid:
    rows = []
    seen = Counter((each.entity, each.metric) for each in summaries)
    for each in summaries:
        unit = unit_of(each.entity, each.metric)
        slope = (
            formats.NOTHING
            if each.slope is None or each.min == each.peak
            else f"{_value(unit, each.slope, signed=True)}/s"
        )
        values = [_value(unit, value) for value in (each.first, each.last, each.mean, each.peak)]
        r2 = formats.NOTHING if each.r2 is None else f"{each.r2:.2f}"
        name = each.entity if seen[each.entity, each.metric] == 1 else f"{each.entity} ({each.source})"
        rows.append([name, each.metric, _trend(each, measure_s), *values, slope, r2])
    columns = ["Entity", "Metric", "Trend", "first", "last", "mean", "peak", "slope", "r²"]
    units = [unit_of(each.entity, each.metric) for each in summaries]
    return Grid(columns, rows, names=3, scope="readings", keys=[_key(each) for each in summaries], units=units)


def _trend(summary: ReadingSummaryRow, measure_s: float) -> str:
    change = _change(summary, measure_s)
    if change is None:
        return formats.NOTHING
    if (summary.r2 or 0.0) < _CLEAR_R2 or abs(change) < _CLEAR_CHANGE:
        return "steady" if abs(change) < _CLEAR_CHANGE else "varies"
    return "↗\N{NO-BREAK SPACE}rising" if change > 0 else "↘\N{NO-BREAK SPACE}falling"


def _value(unit: str, value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return formats.NOTHING
    sign = "−" if value < 0 else "+" if signed and value > 0 else ""
    size = abs(value)
    if unit == BYTES:
        return sign + formats.octets(size)
    return sign + (formats.count(size) if size >= 1000 or float(size).is_integer() else f"{size:.3g}")


def _gap_sentences(gaps: list[InspectorGap]) -> list[str]:
    sentences = []
    for gap in gaps[:GAPS_LISTED]:
        until = "to the end" if gap.end_s is None else f"to {gap.end_s:,.1f} s"
        sentences.append(
            f"{gap.source} got no readings from {gap.start_s:,.1f} s {until}: {gap.reason or 'no reason given'}"
        )
    if len(gaps) > GAPS_LISTED:
        sentences.append(f"and {len(gaps) - GAPS_LISTED:,} more gaps")
    return sentences


def _or_lowest(value: float | None) -> float:
    return -math.inf if value is None else value
