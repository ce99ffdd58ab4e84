"""How many messages were in the system, second by second?

One chart over the same seconds as rate and latency, with the outages tinted, and what Little's law makes of it.
"""

from typing import Any

import numpy as np

from crescendo.record.manifest import Phase
from crescendo.report.data.small_tables import Rows, SmallTables
from crescendo.report.data.tables import RateSeries
from crescendo.report.plots.time_axis import Chart, band, extent_of, line, over_time, plot_name, spans_of, time_notes
from crescendo.report.sections.section import Section

LINES_DRAWN = 6
_TONES = ("blue", "orange", "green", "purple", "muted", "blue")
_DASHES = ("solid", "7px,4px", "2px,2px", "solid", "7px,4px", "2px,3px")


def backlog(tables: SmallTables, timeline: RateSeries | None, phases: list[Phase]) -> Section | None:
    """None when nothing was ever waiting."""
    rows = tables.rows("backlog")
    if timeline is None or not any(row["peak"] for row in rows):
        return None
    peaks: dict[str, int] = {}
    for row in rows:
        peaks[row["subscription"]] = max(peaks.get(row["subscription"], 0), row["peak"])
    deepest = sorted(peaks, key=lambda name: (-peaks[name], name))[:LINES_DRAWN]
    traces = []
    for name, tone, dash in zip(deepest, _TONES, _DASHES, strict=False):
        x, y = _binned([row for row in rows if row["subscription"] == name], timeline)
        traces.append(line(plot_name(name), x, y, tone, hover="%{y:,.0f}", dash=dash))
        traces[-1]["line"]["shape"] = "hvh"
    top = max(peaks[name] for name in deepest)
    tick = "~s" if top >= 1000 else "~g"
    axis: dict[str, Any] = {"title": {"text": "messages in the system"}, "tickformat": tick, "fixedrange": True}
    bottom = min(0, *(row["backlog"] for row in rows))
    spans = spans_of(phases)
    layout = over_time(extent_of(timeline), spans, axis | {"range": [bottom, max(top, 1) * 1.18]})
    for row in tables.rows("outages"):
        end_ns = row["start_ns"] + row["gap_ns"]
        layout["shapes"].append(band(tables.second(row["start_ns"]), tables.second(end_ns)) | {"name": "gap"})
    notes = time_notes(timeline, spans)
    if len(peaks) > len(deepest):
        notes.append(f"The {len(deepest)} subscriptions with the highest peaks of {len(peaks):,}.")
    if any(shape.get("name") == "gap" for shape in layout["shapes"]):
        notes.append("Tinted: outages.")
    words = "; ".join(f"{name} up to {peaks[name]:,}" for name in deepest)
    chart = Chart({"data": traces, "layout": layout}, f"Messages in the system over time: {words}.", notes)
    return Section("backlog", "Backlog", _little_words(tables.rows("little")), chart, {})


def _binned(rows: Rows, timeline: RateSeries) -> tuple[np.ndarray, np.ndarray]:
    """The highest peak of each bin of the page's time axis; what was never counted is a gap in the line."""
    values = np.full(timeline.bins, np.nan)
    places = [(row["second"] - timeline.first_second) // timeline.bin_seconds for row in rows]
    inside = [(place, row["peak"]) for place, row in zip(places, rows, strict=True) if 0 <= place < timeline.bins]
    for place, peak in inside:
        values[place] = np.fmax(values[place], peak)
    middles = timeline.first_second + (np.arange(timeline.bins) + 0.5) * timeline.bin_seconds
    return middles, values


def _little_words(rows: Rows) -> str:
    lead = "Messages sent and not yet received."
    for row in rows:
        lead += (
            f" Little's law {'holds' if row['holds'] else 'does not hold'} in the measure phase: on average"
            f" {row['mean_backlog']:,.3g} messages in the system, and rate times mean transfer is"
            f" {row['rate_times_transfer']:,.3g}."
        )
        if not row["holds"]:
            lead += " Messages or times are missing from the account, or the system was not steady."
    return lead
