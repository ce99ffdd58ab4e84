"""How did the jitter of single messages change over time?

One line per receiver, over the same seconds as every chart over time. A peak is a message that waited, as during a
handoff; the negative values after it are those that were held back and arrived together. Draws what the table holds.
"""

from crescendo.model.units import format_ns
from crescendo.record.tables import JITTER_SERIES
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.plots.line_styles import LINE_STYLES
from crescendo.report.plots.time_axis import Chart, TimeAxis, line


def jitter_chart(tables: SmallTables, axis: TimeAxis) -> Chart | None:
    """None if the jitter of single messages was not kept."""
    rows = tables.rows(JITTER_SERIES)
    if not rows:
        return None
    receivers = sorted({row.receiver for row in rows})
    traces = []
    for receiver, (tone, dash) in zip(receivers, LINE_STYLES, strict=False):
        mine = sorted((row for row in rows if row.receiver == receiver), key=lambda row: row.arrival)
        x, y = [tables.second(row.t_ns) for row in mine], [row.jitter_ns / 1e9 for row in mine]
        trace = line(f"receiver {receiver}", x, y, tone, hover="%{text}", dash=dash)
        trace["text"] = [format_ns(row.jitter_ns) for row in mine]
        traces.append(trace)
    layout = axis.layout({"title": {"text": "jitter"}, "ticksuffix": " s", "fixedrange": True, "zeroline": True})
    worst = max(rows, key=lambda row: row.jitter_ns)
    label = f"Jitter of each message over time; the largest is {format_ns(worst.jitter_ns)}."
    return Chart({"data": traces, "layout": layout}, label, axis.notes())
