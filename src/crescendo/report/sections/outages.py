"""When did deliveries stop, what followed a fault, and was the system steady?

One section: outages and recovery, events and the traffic around them, and the trends of the measure phase. Every number
comes from the pipeline; this module only formats and sorts.
"""

from crescendo.model.units import format_ns
from crescendo.record.schema import AGENT_EVENTS
from crescendo.record.tables import (
    BURSTS,
    EFFECTS,
    OUTAGES,
    STEADY_STATE,
    BurstRow,
    EffectRow,
    OutageRow,
    SteadyStateRow,
)
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import ROWS_SHOWN, Section

_METRICS = {"rate": "rate", "p99_ns": "p99 latency", "backlog": "backlog"}


def outages(tables: SmallTables) -> Section | None:
    """None if all of its tables are empty."""
    gaps, steady = tables.rows(OUTAGES), tables.rows(STEADY_STATE)
    effects = [row for row in tables.rows(EFFECTS) if row.kind not in AGENT_EVENTS]  # they have a section of their own
    if not gaps and not effects and not steady:
        return None
    bursts = tables.rows(BURSTS)
    grids: dict[str, Grid] = {}
    if gaps:
        grids["Outages"] = _outage_grid(gaps[:ROWS_SHOWN], bursts, tables)
    if effects:
        grids["Faults and broken connections"] = _effect_grid(effects[:ROWS_SHOWN], tables)
    if steady:
        grids["Steady state"] = _steady_grid(steady)
    lead = "No unexpected gap in deliveries."
    if gaps:
        longest = max(gaps, key=lambda row: row.gap_ns)
        at = f"{format_ns(longest.gap_ns)} at {tables.second(longest.start_ns):,.1f} s ({longest.subscription})"
        lead = f"{formats.plural(len(gaps), 'unexpected gap')} in deliveries, the longest {at}."
    drifting = [row for row in steady if row.state in {"rising", "falling"}]
    if drifting:
        lead += " Not steady in the measure phase: " + ", ".join(
            f"{_METRICS[row.metric]} {row.state}" for row in drifting
        )
        lead += "."
    left_out = max(len(gaps) - ROWS_SHOWN, 0) + max(len(effects) - ROWS_SHOWN, 0)
    return Section("outages", "Outages and steady state", lead, None, grids, left_out)


def _outage_grid(gaps: list[OutageRow], bursts: list[BurstRow], tables: SmallTables) -> Grid:
    rows = []
    for row in gaps:
        key = row.subscription, row.start_ns
        mine = [each for each in bursts if (each.subscription, each.start_ns) == key]
        resumed = row.end_ns is not None
        rows.append(
            [
                row.subscription,
                f"{tables.second(row.start_ns):,.2f} s",
                format_ns(row.gap_ns) if resumed else "never resumed",
                f"{formats.rate(row.earlier_rate)} msg/s",
                formats.nanoseconds(row.recovered_ns),
                formats.count(row.area_lost),
                formats.nanoseconds(row.caught_up_ns),
                formats.NOTHING if row.peak_rate is None else f"{formats.rate(row.peak_rate)} msg/s",
                formats.count(sum(each.negative for each in mine)) if resumed else formats.NOTHING,
                formats.count(sum(each.inversions for each in mine)) if resumed else formats.NOTHING,
            ]
        )
    columns = [
        "Subscription", "at", "gap", "rate before", "recovered in", "not delivered in time", "caught up in", "peak",
        "in a burst", "out of order",
    ]  # fmt: skip
    times = [(tables.second(row.start_ns), tables.second(row.start_ns + row.gap_ns)) for row in gaps]
    return Grid(columns, rows, scope="times", times=times)


def _effect_grid(effects: list[EffectRow], tables: SmallTables) -> Grid:
    rows = [
        [
            row.kind,
            row.source,
            f"{tables.second(row.t_ns):,.2f} s",
            formats.rate(row.rate_before),
            formats.rate(row.rate_after),
            formats.nanoseconds(row.p99_before_ns),
            formats.nanoseconds(row.p99_after_ns),
            formats.count(row.backlog_peak),
            formats.nanoseconds(row.outage_gap_ns),
        ]
        for row in effects
    ]
    columns = ["Event", "Source", "at", "msg/s before", "after", "p99 before", "after", "backlog up to", "outage"]
    times = [(tables.second(row.t_ns), tables.second(row.t_ns)) for row in effects]
    return Grid(columns, rows, names=2, scope="times", times=times)


def _steady_grid(steady: list[SteadyStateRow]) -> Grid:
    rows = []
    for row in steady:
        trend = [formats.NOTHING] * 3
        if row.p is not None and row.slope is not None and row.change is not None:
            trend = [
                f"{_quantity(row.metric, row.slope, signed=True)}/s",
                f"{row.change:+.1%}".replace("-", "−").replace("%", " %"),
                f"{row.p:.3f}",
            ]
        rows.append(
            [
                _METRICS[row.metric],
                row.state,
                _quantity(row.metric, row.median),
                *trend,
                formats.NOTHING if row.settled_after_s is None else f"{row.settled_after_s:,} s",
            ]
        )
    columns = ["Metric", "State", "median", "slope", "change over the phase", "p", "settled after"]
    return Grid(columns, rows, names=2)


def _quantity(metric: str, value: float, *, signed: bool = False) -> str:
    sign = "−" if value < 0 else "+" if signed and value > 0 else ""
    size = abs(value)
    if metric == "p99_ns":
        return sign + (format_ns(size) if size else "0 s")
    return sign + (formats.rate(size) if size >= 1 or not size else f"{size:.2g}")
