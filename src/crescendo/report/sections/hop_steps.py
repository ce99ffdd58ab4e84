"""Where on its way through the network did a message spend its time?

The steps of every route that sampled messages took, with their share of the whole. Every duration comes from the
pipeline; shares are of the mean, which is the sum of the steps.
"""

from crescendo.record.tables import HOPS, HopRow
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import ROWS_SHOWN, Section


def hops_section(tables: SmallTables) -> Section | None:
    """None without samples."""
    found = tables.rows(HOPS)
    if not found:
        return None
    routes: dict[str, list[HopRow]] = {}
    for row in found:
        routes.setdefault(row.route, []).append(row)
    busiest = sorted(routes.items(), key=lambda item: -item[1][0].messages)
    grids = {
        f"{route} ({formats.plural(rows[0].messages, 'message')})": _grid(rows) for route, rows in busiest[:ROWS_SHOWN]
    }
    sampled = sum(rows[0].messages for rows in routes.values())
    longest = max(busiest[0][1], key=lambda row: row.mean_ns)
    lead = (
        f"{formats.plural(sampled, 'message')} of the measure phase, one in a hundred, from the time of sending. "
        f"The longest step is {_name(longest)}."
    )
    return Section("hops", "Hop by hop", lead, None, grids, max(len(routes) - ROWS_SHOWN, 0))


def _name(row: HopRow) -> str:
    return f"in {row.start}" if row.start == row.end else f"{row.start} → {row.end}"


def _grid(rows: list[HopRow]) -> Grid:
    whole_ns = sum(row.mean_ns for row in rows)
    cells = [
        [
            _name(row),
            formats.nanoseconds(round(row.mean_ns)),
            formats.percent(row.mean_ns / whole_ns) if whole_ns > 0 else formats.NOTHING,
            *(formats.nanoseconds(value) for value in (row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns)),
        ]
        for row in rows
    ]
    total = ["all steps", formats.nanoseconds(round(whole_ns)), *[formats.NOTHING] * 5]
    return Grid(["Step", "mean", "share", "p50", "p90", "p99", "longest"], [*cells, total])
