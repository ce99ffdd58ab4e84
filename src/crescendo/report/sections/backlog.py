"""How many messages were in the system, second by second?

One chart over the same seconds as rate and latency, and the result of Little's law.
"""

from typing import Any

import numpy as np

from crescendo.record.tables import BACKLOG, LITTLE, BacklogRow, LittleRow
from crescendo.report.data.chart_tables import TimeBins
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.plots.line_styles import LINE_STYLES, LINES_DRAWN
from crescendo.report.plots.series import bin_centres
from crescendo.report.plots.time_axis import Chart, TimeAxis, line, plot_name
from crescendo.report.sections.section import Section


def backlog(tables: SmallTables, time_bins: TimeBins | None, axis: TimeAxis) -> Section | None:
    """None if the backlog was always zero."""
    rows = tables.rows(BACKLOG)
    if time_bins is None or not any(row.peak for row in rows):
        return None
    peaks: dict[str, int] = {}
    for row in rows:
        peaks[row.subscription] = max(peaks.get(row.subscription, 0), row.peak)
    deepest = sorted(peaks, key=lambda name: (-peaks[name], name))[:LINES_DRAWN]
    traces = []
    for name, (tone, dash) in zip(deepest, LINE_STYLES, strict=False):
        x, y = _binned([row for row in rows if row.subscription == name], time_bins)
        traces.append(line(plot_name(name), x, y, tone, hover="%{y:,.0f}", dash=dash))
        traces[-1]["line"]["shape"] = "hvh"
    top = max(peaks[name] for name in deepest)
    tick = "~s" if top >= 1000 else "~g"
    y_axis: dict[str, Any] = {"title": {"text": "messages in the system"}, "tickformat": tick, "fixedrange": True}
    bottom = min(0, *(row.backlog for row in rows))
    layout = axis.layout(y_axis | {"range": [bottom, max(top, 1) * 1.18]})
    notes = axis.notes()
    if len(peaks) > len(deepest):
        notes.append(f"The {len(deepest)} subscriptions with the highest peaks out of {len(peaks):,}.")
    description = "; ".join(f"{name} up to {peaks[name]:,}" for name in deepest)
    chart = Chart({"data": traces, "layout": layout}, f"Messages in the system over time: {description}.", notes)
    return Section("backlog", "Backlog", _lead(tables.rows(LITTLE)), chart, {})


def _binned(rows: list[BacklogRow], time_bins: TimeBins) -> tuple[np.ndarray, np.ndarray]:
    """The highest peak in each bin of the time axis. A bin without data is a gap in the line."""
    values = np.full(time_bins.bins, np.nan)
    bins = [(row.second - time_bins.first_second) // time_bins.bin_seconds for row in rows]
    peaks = [(index, row.peak) for index, row in zip(bins, rows, strict=True) if 0 <= index < time_bins.bins]
    for index, peak in peaks:
        values[index] = np.fmax(values[index], peak)
    return bin_centres(time_bins), values


def _lead(rows: list[LittleRow]) -> str:
    lead = "Messages sent but not yet received."
    for row in rows:
        lead += (
            f" Little's law {'holds' if row.holds else 'does not hold'} in the measure phase: on average"
            f" {row.mean_backlog:,.3g} messages were in the system, and rate times mean transfer time is"
            f" {row.rate_times_transfer:,.3g}."
        )
        if not row.holds:
            lead += " Messages or times are missing, or the system was not steady."
    return lead
