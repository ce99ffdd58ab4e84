"""How evenly did messages arrive, and where did requests spend their time?

Two sections: jitter by receiver, and spans by action with one bar per action, or one bar per request divided into its
tiers. A section exists only if the pipeline wrote its table. Formats text; computes nothing.
"""

from crescendo.record.tables import JITTER, SPANS, SpanRow
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.plots.jitter_chart import jitter_chart
from crescendo.report.plots.time_axis import Chart, TimeAxis, plot_name
from crescendo.report.plots.time_bars import mean_time_layout
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.request_breakdown import RequestKind, request_breakdown, requests_of
from crescendo.report.sections.section import ROWS_SHOWN, Section

BARS_DRAWN = 12
TIERS_SHOWN = 40
_ALL = "all"
_COLUMNS = ["Action", "Outcome", "count", "share", "mean", "p50", "p90", "p99", "p99.9", "max"]


def jitter(tables: SmallTables, axis: TimeAxis) -> Section | None:
    found = sorted(tables.rows(JITTER), key=lambda row: -row.statistics.max_ns)
    if not found:
        return None
    rows = [
        [
            str(row.receiver),
            formats.count(row.statistics.count),
            formats.nanoseconds(row.statistics.max_ns),
            formats.nanoseconds(row.mean_abs_ns),
            *_percentiles(row.statistics.p50, row.statistics.p99, row.statistics.p99_9),
            formats.nanoseconds(row.statistics.min_ns),
            formats.nanoseconds(row.rfc3550_ns),
        ]
        for row in found[:ROWS_SHOWN]
    ]
    columns = ["Receiver", "samples", "max", "mean size", "p50", "p99", "p99.9", "min", "RFC 3550"]
    lead = (
        "The time between two deliveries minus the time between their intended send times. Positive jitter: a message"
        " arrived later after its predecessor than intended. Negative jitter: earlier, as messages held back by an"
        " outage do when it ends."
    )
    grids = {"Jitter by receiver": Grid(columns, rows)}
    return Section("jitter", "Jitter", lead, jitter_chart(tables, axis), grids, max(len(found) - ROWS_SHOWN, 0))


def spans_section(tables: SmallTables) -> Section | None:
    found = [row for row in tables.rows(SPANS) if row.phase == "measure"]
    if not found:
        return None
    whole = sorted((row for row in found if row.outcome is None), key=lambda row: (-row.total_ns, row.action))
    if requests := requests_of(whole):
        return _breakdown_section(found, whole, requests)
    rows = []
    for row in whole[:ROWS_SHOWN]:
        rows += _with_outcomes(row, found)
    lead = (
        "Spans that clients and brokers timed themselves in the measure phase, sorted by total time. The share is"
        " relative to the first row: if the actions are tiers of one request, that is the whole request."
    )
    grids = {"Spans by action": _grid(rows)}
    return Section("tiers", "Tiers", lead, _bars(whole[:BARS_DRAWN]), grids, max(len(whole) - ROWS_SHOWN, 0))


def _breakdown_section(found: list[SpanRow], whole: list[SpanRow], requests: list[RequestKind]) -> Section:
    """Requests with their tiers below them, then all other actions."""
    ordered = [(row, row is each.whole) for each in requests for row in each.rows]
    within = {row.action for row, _ in ordered}
    ordered += [(row, True) for row in whole if row.action not in within]
    rows = []
    for row, is_whole in ordered[:TIERS_SHOWN]:
        rows += _with_outcomes(row, found) if is_whole else [_tier_row(row, _ALL)]
    lead = (
        "The time of requests in the measure phase, and of the tiers inside them. Each tier is measured where it"
        " happens; the network is the rest of the client's time. A share is relative to the request. In the chart, the"
        " bar of a request is its mean time, divided into its tiers."
    )
    grids = {"Spans by action": _grid(rows)}
    return Section("tiers", "Tiers", lead, request_breakdown(requests), grids, max(len(ordered) - TIERS_SHOWN, 0))


def _grid(rows: list[list[str]]) -> Grid:
    """Rows of one outcome have no key: a selected range has all outcomes together."""
    keys = [row[0] if row[1] == _ALL else "" for row in rows]
    return Grid(_COLUMNS, rows, names=2, scope="spans", keys=keys)


def _with_outcomes(row: SpanRow, found: list[SpanRow]) -> list[list[str]]:
    """One row for the action, and one for each of its outcomes if there were several."""
    outcomes = [each for each in found if each.action == row.action and each.outcome is not None]
    return [_tier_row(each, each.outcome or _ALL) for each in (row, *outcomes)]


def _bars(rows: list[SpanRow]) -> Chart:
    """The mean of each action, the one with the most total time at the top."""
    upwards = rows[::-1]
    names = [plot_name(row.action, 20) for row in upwards]
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "mean",
        "x": [float(f"{row.statistics.mean_ns / 1e9:.6g}") for row in upwards],
        "y": list(range(len(upwards))),
        "customdata": names,
        "line": {},
        "marker": {},
        "meta": {"tone": "blue"},
        "hovertemplate": "%{x:.3s}s<extra>%{customdata}</extra>",
    }
    description = "; ".join(f"{row.action} {formats.nanoseconds(row.statistics.mean_ns)}" for row in rows)
    return Chart({"data": [bars], "layout": mean_time_layout(names)}, f"Mean time by action: {description}.", [])


def _tier_row(row: SpanRow, outcome: str) -> list[str]:
    statistics = row.statistics
    return [
        row.action,
        outcome,
        formats.count(row.statistics.count),
        formats.NOTHING if row.share is None else formats.percent(row.share),
        formats.nanoseconds(row.statistics.mean_ns),
        *_percentiles(statistics.p50, statistics.p90, statistics.p99, statistics.p99_9),
        formats.nanoseconds(row.statistics.max_ns),
    ]


def _percentiles(*values_ns: int | None) -> list[str]:
    return [formats.WITHHELD if value_ns is None else formats.nanoseconds(value_ns) for value_ns in values_ns]
