"""What did the network of a run carry?

The network as the manifest keeps it, drawn with what the inspectors of its nodes read in the measure phase: messages
per second on each link and through each node, queue depth, unsettled messages and memory, and with the mean time of
each step that sampled messages took. What a program does not report is not drawn. Says that a relay is a stand-in.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.gauges import GAUGES
from crescendo.record.manifest import Manifest
from crescendo.record.stand_in import SENTENCE, stand_ins_of
from crescendo.record.summary import Latency
from crescendo.record.tables import HopRow, ReadingSummaryRow
from crescendo.record.timeline import MEASURE
from crescendo.report import formats
from crescendo.report.plots.network_picture import DrawnLink, DrawnNode, Point, network_svg
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import Section

_DEPTH, _MEMORY, _, _UNSETTLED, _ = GAUGES
_RESPONSE = "response"
_SMALLEST = 0.5  # what rounds to nothing is not drawn
_THROUGH = ("deliveriesIngress", "deliveriesEgress", "deliveriesTransit")


class _Node(Struct, frozen=True):
    id: str
    type: str
    program: str
    x: float
    y: float
    version: str = ""


class _Link(Struct, frozen=True):
    source: str
    target: str
    cost: int = 1


class _Body(Struct, frozen=True):
    sent_as: str
    arrived_as: dict[str, int]
    equal: int
    messages: int


class _Route(Struct, frozen=True):
    """What a way through the network did to messages that were compared one by one."""

    source: str
    target: str
    address: str
    sent: int
    lost: int
    duplicated: int
    reordered: int
    bodies: list[_Body]
    kept: list[str]
    dropped: list[str]
    changed: list[str]
    added: list[str]
    invalid: dict[str, int] = {}


class _Network(Struct, frozen=True):
    topology: str
    nodes: list[_Node]
    links: list[_Link]
    routes: list[_Route] = []


def network_section(
    manifest: Manifest,
    summaries: list[ReadingSummaryRow],
    hops: Sequence[HopRow] = (),
    latency: Sequence[Latency] = (),
) -> Section | None:
    """None if the system was not a network."""
    try:
        network = msgspec.convert(manifest.system, _Network)
    except msgspec.ValidationError:
        return None
    readings = {node.id: [row for row in summaries if _is_from(row.source, node.id)] for node in network.nodes}
    took = _durations(hops)
    places = {node.id: (node.x, node.y) for node in network.nodes}
    nodes = [
        DrawnNode(node.id, node.type, node.program, _lines(readings[node.id]) + _took(took.get((node.id, node.id))))
        for node in network.nodes
    ]
    types = {node.id: node.type for node in network.nodes}
    links = [
        DrawnLink(
            (link.source, link.target),
            link.cost if {types[link.source], types[link.target]} == {"router"} else None,
            dashed={types[link.source], types[link.target]} != {"router"},
            text=_traffic(link, readings, took, places),
        )
        for link in {frozenset((link.source, link.target)): link for link in network.links}.values()
    ]
    lead = "The network, with messages per second in the measure phase, as its nodes count them."
    if took:
        lead += " The mean is of the times that sampled messages took over a link or through a node."
    return Section(
        "network",
        "Network",
        f"{lead} {SENTENCE}" if stand_ins_of(manifest.system) else lead,
        None,
        {"Nodes": _grid(network, readings), **_route_grids(network.routes)},
        picture=network_svg(nodes, links, places, " · ".join([network.topology, *_whole(latency)])),
    )


def _route_grids(routes: list[_Route]) -> dict[str, Grid]:
    """Messages of every kind that were sent before the load, and what arrived."""
    if not routes:
        return {}
    counts = [
        [_way(route), *(formats.count(value) for value in (route.sent, route.lost, route.duplicated, route.reordered))]
        for route in routes
    ]
    bodies = [
        [
            _way(route),
            body.sent_as,
            _became(body),
            formats.count(body.messages),
            formats.count(body.messages - body.equal),
        ]
        for route in routes
        for body in route.bodies
    ]
    names = [
        [
            _way(route),
            *(
                ", ".join(each) or formats.NOTHING
                for each in (route.kept, route.changed, route.dropped, route.added, sorted(route.invalid))
            ),
        ]
        for route in routes
    ]
    return {
        "Links: messages compared before the load": Grid(
            ["Way", "sent", "lost", "duplicated", "reordered"], counts, alarms=2
        ),
        "Links: bodies": Grid(["Way", "sent as", "arrived as", "messages", "changed"], bodies, names=3, alarms=4),
        "Links: properties": Grid(
            ["Way", "kept", "changed", "lost", "added", "sections that are not valid"], names, names=6
        ),
    }


def _way(route: _Route) -> str:
    return f"{route.source} → {route.target} ({route.address})"


def _became(body: _Body) -> str:
    return ", ".join(f"{kind} {formats.count(count)}" for kind, count in sorted(body.arrived_as.items())) or "nothing"


def _is_from(source: str, node: str) -> bool:
    return source in {f"inspector-{node}", f"inspector-process-{node}"}


def _rate(rows: Iterable[ReadingSummaryRow], *metrics: str, entity: str) -> float | None:
    """Messages per second of all entities that begin like this, a regular expression."""
    begins = re.compile(entity)
    found = [row.slope for row in rows if row.metric in metrics and begins.match(row.entity) and row.slope is not None]
    return sum(found) if found else None


def _mean(rows: Iterable[ReadingSummaryRow], gauge: Any) -> float | None:
    found = [row.mean for row in rows if gauge.shows(row.entity, row.metric) and row.mean is not None]
    return sum(found) if found else None


def _lines(rows: list[ReadingSummaryRow]) -> list[str]:
    shown = [
        ("in {} msg/s", _rate(rows, "deliveriesIngress", entity="router/")),
        ("out {} msg/s", _rate(rows, "deliveriesEgress", entity="router/")),
        ("transit {} msg/s", _rate(rows, "deliveriesTransit", entity="router/")),
        ("depth {}", _mean(rows, _DEPTH)),
    ]
    return [text.format(formats.rate(value)) for text, value in shown if value is not None and value >= _SMALLEST]


def _durations(hops: Sequence[HopRow]) -> dict[tuple[str, str], float]:
    """The mean time of each step, over the route that most sampled messages took: means of steps add up."""
    found: dict[tuple[str, str], float] = {}
    for row in sorted(hops, key=lambda row: -row.messages):
        found.setdefault((row.start, row.end), row.mean_ns)
    return found


def _whole(latency: Sequence[Latency]) -> list[str]:
    """How long messages took from sender to receiver, through the whole network."""
    measured = [row for row in latency if row.phase == MEASURE and row.kind == _RESPONSE]
    known = [(name, row.percentiles_ns.get(name)) for row in measured for name in ("p50", "p99")]
    shown = [f"{name} {formats.nanoseconds(value)}" for name, value in known if value is not None]
    return [f"sender to receiver {', '.join(shown)}"] if shown else []


def _took(mean_ns: float | None) -> list[str]:
    return [] if mean_ns is None else [f"mean {formats.nanoseconds(round(mean_ns))}"]


def _traffic(
    link: _Link,
    readings: Mapping[str, list[ReadingSummaryRow]],
    took: Mapping[tuple[str, str], float],
    places: Mapping[str, Point],
) -> list[str]:
    """Messages per second in each direction, from the end that reports them, and how long they took."""
    found = []
    for near, far in ((link.source, link.target), (link.target, link.source)):
        rate = _rate(readings[near], "deliveriesOut", entity=_connection(far))
        if rate is None:
            rate = _rate(readings[far], "deliveriesIn", entity=_connection(near))
        if rate is not None and rate >= _SMALLEST:
            text = f"{formats.rate(rate)}/s"
            found.append(f"{text} →" if places[near] <= places[far] else f"← {text}")
            found += _took(took.get((near, far)))
    return found


def _connection(name: str) -> str:
    """Connections to a node as routers call them; a second link to the same broker has a number."""
    return rf"connection/{re.escape(name)}(-\d+)?/"


def _grid(network: _Network, readings: Mapping[str, list[ReadingSummaryRow]]) -> Grid:
    rows = []
    for node in network.nodes:
        mine = readings[node.id]
        rates = [_rate(mine, metric, entity="router/") for metric in _THROUGH]
        memory = _mean(mine, _MEMORY)
        rows.append(
            [
                node.id,
                " ".join(filter(None, (node.program, node.version))),
                *(formats.NOTHING if rate is None else formats.rate(max(rate, 0.0)) for rate in rates),
                *(
                    formats.NOTHING if value is None else formats.count(round(value))
                    for value in (_mean(mine, _DEPTH), _mean(mine, _UNSETTLED))
                ),
                formats.NOTHING if memory is None else formats.octets(memory),
            ]
        )
    columns = ["Node", "Program", "in per s", "out per s", "transit per s", "depth", "unsettled", "memory"]
    return Grid(columns, rows, names=2)
