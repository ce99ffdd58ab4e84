"""What do the operational laws say about this run?

They hold whatever the distributions are. Each part of the system that was measured is a station: the tiers of requests,
the processes that an inspector watched, the steps of a network. From its visits and its time per visit follow its own
throughput (forced flow), how many are in it (Little), how busy its servers are (utilisation), and which station would
saturate first (the bottleneck). Measures nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crescendo.model.experiment import Experiment
from crescendo.model.mlmq_tiers import WAITING_TIERS, servers_of, station_of
from crescendo.model.operational_laws import Demand, bottleneck, forced_flow, in_system, utilization
from crescendo.record.manifest import Manifest
from crescendo.record.summary import Summary
from crescendo.record.tables import HOPS, SPANS, HopRow, ReadingSummaryRow, SpanRow
from crescendo.record.timeline import MEASURE
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.request_breakdown import requests_of
from crescendo.report.sections.section import ROWS_SHOWN, Section

_CPU_CORES = "cpu_cores"  # of the inspector `process`
_COLUMNS = ["Station", "visits", "per second", "time per visit", "demand", "in it", "servers", "utilisation", "at most"]


@dataclass(frozen=True)
class VisitedStation:
    """One part of the system, as one message or request sees it on average. No limit of servers: a delay."""

    name: str
    visits: float
    seconds: float  # per visit
    servers: int | None = None

    @property
    def demand(self) -> Demand:
        seconds = self.visits * self.seconds
        return Demand(seconds, self.servers) if self.servers else Demand(seconds, is_delay=True)


def laws_section(
    tables: SmallTables,
    readings: Sequence[ReadingSummaryRow],
    manifest: Manifest,
    experiment: Experiment | None,
    summary: Summary,
) -> Section | None:
    """None if nothing inside the system was measured, or nothing arrived."""
    spans = [row for row in tables.rows(SPANS) if row.phase == MEASURE and row.outcome is None]
    requests = sum(request.whole.statistics.count for request in requests_of(spans))
    noun, throughput = "message", summary.rate.sustained
    stations = tier_stations(spans, experiment)
    if stations and summary.rate.duration_ns:
        noun, throughput = "request", requests / (summary.rate.duration_ns / 1e9)
    if throughput <= 0:
        return None
    stations += processor_stations(readings, throughput, int(manifest.host.get("cores") or 0))
    stations += hop_stations(tables.rows(HOPS))
    if not stations:
        return None
    cells = [_cells(station, throughput) for station in stations[:ROWS_SHOWN]]
    left_out = max(len(stations) - ROWS_SHOWN, 0)
    return Section(
        "laws", "Operational laws", _lead(stations, noun), None, {"Stations": Grid(_COLUMNS, cells)}, left_out
    )


def tier_stations(spans: Sequence[SpanRow], experiment: Experiment | None) -> list[VisitedStation]:
    """The tiers of requests: those that a station serves together, and those in which a request waits."""
    found = requests_of(list(spans))
    count = sum(request.whole.statistics.count for request in found)
    visits: dict[str, int] = {}
    spent_ns: dict[str, float] = {}
    for request in found:
        for tier, row in request.tiers.items():
            name = station_of(tier) or (tier if tier in WAITING_TIERS else "")
            if name:
                visits[name] = visits.get(name, 0) + row.statistics.count
                spent_ns[name] = spent_ns.get(name, 0.0) + row.total_ns
    return [
        VisitedStation(
            name,
            visits[name] / count,
            spent_ns[name] / visits[name] / 1e9,
            None if experiment is None else servers_of(experiment, name),
        )
        for name in visits
        if visits[name]
    ]


def processor_stations(readings: Sequence[ReadingSummaryRow], throughput: float, cores: int) -> list[VisitedStation]:
    """The processors, as each watched process uses them: by the utilisation law, its demand is U / X."""
    return [
        VisitedStation(f"processor ({row.source})", 1.0, row.mean / throughput, cores or None)
        for row in readings
        if row.metric == _CPU_CORES and row.mean
    ]


def hop_stations(hops: Sequence[HopRow]) -> list[VisitedStation]:
    """Nodes and links of a network; a message visits those of its route."""
    sampled = sum({row.route: row.messages for row in hops}.values())
    visits: dict[str, int] = {}
    spent_ns: dict[str, float] = {}
    for row in hops:
        name = row.start if row.start == row.end else f"{row.start} → {row.end}"
        visits[name] = visits.get(name, 0) + row.messages
        spent_ns[name] = spent_ns.get(name, 0.0) + row.messages * row.mean_ns
    return [
        VisitedStation(name, visits[name] / sampled, spent_ns[name] / visits[name] / 1e9)
        for name in visits
        if visits[name]
    ]


def _cells(station: VisitedStation, throughput: float) -> list[str]:
    demand = station.demand
    known = station.servers is not None
    return [
        station.name,
        f"{station.visits:.3g}",
        formats.count(round(forced_flow(throughput, station.visits))),
        formats.nanoseconds(station.seconds * 1e9),
        formats.nanoseconds(demand.seconds * 1e9),
        f"{in_system(throughput, demand.seconds):.3g}",
        formats.count(demand.servers) if known else formats.NOTHING,
        formats.percent(utilization(throughput, demand.seconds, demand.servers)) if known else formats.NOTHING,
        formats.count(round(demand.servers / demand.seconds)) if known and demand.seconds > 0 else formats.NOTHING,
    ]


def _lead(stations: Sequence[VisitedStation], noun: str) -> str:
    lead = (
        f"Means over the measure phase, per {noun}. Visits × time per visit is the demand. A station's throughput is"
        f" {noun}s per second × visits (forced flow); × demand, that is how many {noun}s are in it (Little); divided by"
        " its servers, how busy they are (utilisation). A station without servers is a delay. What other programs take"
        " of the processors is not counted."
    )
    demands = {station.name: station.demand for station in stations}
    if all(demand.is_delay for demand in demands.values()):
        return lead
    slowest = bottleneck(demands)
    most = demands[slowest].servers / demands[slowest].seconds
    return f"{lead} The bottleneck is {slowest}: it would be saturated by {most:,.0f} {noun}s per second."
