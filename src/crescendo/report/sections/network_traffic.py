"""What did the network of a run carry?

The network as the manifest keeps it, drawn with what the inspectors of its nodes read in the measure phase: messages
per second on each link and through each node, queue depth, unsettled messages and memory. What a program does not
report is not drawn. Says that a relay is a stand-in.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.record.manifest import Manifest
from crescendo.record.tables import ReadingSummaryRow
from crescendo.report import formats
from crescendo.report.plots.gauges import GAUGES
from crescendo.report.plots.network_picture import DrawnLink, DrawnNode, network_svg
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import Section

STAND_IN = (
    "A relay is a stand-in for a router: it routes by the same rules, but its figures say nothing about qpid-dispatch "
    "or skupper-router."
)
_DEPTH, _MEMORY, _, _UNSETTLED, _ = GAUGES
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


class _Network(Struct, frozen=True):
    topology: str
    nodes: list[_Node]
    links: list[_Link]
    stand_ins: int = 0
    routes: list[_Route] = []


def network_section(manifest: Manifest, summaries: list[ReadingSummaryRow]) -> Section | None:
    """None if the system was not a network."""
    try:
        network = msgspec.convert(manifest.system, _Network)
    except msgspec.ValidationError:
        return None
    readings = {node.id: [row for row in summaries if _is_from(row.source, node.id)] for node in network.nodes}
    nodes = [DrawnNode(node.id, node.type, node.program, _lines(readings[node.id])) for node in network.nodes]
    types = {node.id: node.type for node in network.nodes}
    links = [
        DrawnLink(
            (link.source, link.target),
            link.cost if {types[link.source], types[link.target]} == {"router"} else None,
            dashed={types[link.source], types[link.target]} != {"router"},
            text=_traffic(link, readings),
        )
        for link in network.links
    ]
    places = {node.id: (node.x, node.y) for node in network.nodes}
    lead = "The network, with messages per second in the measure phase, as its nodes count them."
    return Section(
        "network",
        "Network",
        f"{lead} {STAND_IN}" if network.stand_ins else lead,
        None,
        {"Nodes": _grid(network, readings), **_route_grids(network.routes)},
        picture=network_svg(nodes, links, places, network.topology),
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
            *(", ".join(each) or formats.NOTHING for each in (route.kept, route.changed, route.dropped, route.added)),
        ]
        for route in routes
    ]
    return {
        "Links: messages compared before the load": Grid(
            ["Way", "sent", "lost", "duplicated", "reordered"], counts, alarms=2
        ),
        "Links: bodies": Grid(["Way", "sent as", "arrived as", "messages", "changed"], bodies, names=3, alarms=4),
        "Links: properties": Grid(["Way", "kept", "changed", "lost", "added"], names, names=5),
    }


def _way(route: _Route) -> str:
    return f"{route.source} → {route.target} ({route.address})"


def _became(body: _Body) -> str:
    return ", ".join(f"{kind} {formats.count(count)}" for kind, count in sorted(body.arrived_as.items())) or "nothing"


def _is_from(source: str, node: str) -> bool:
    return source in {f"inspector-{node}", f"inspector-process-{node}"}


def _rate(rows: Iterable[ReadingSummaryRow], *metrics: str, entity: str) -> float | None:
    found = [
        row.slope for row in rows if row.metric in metrics and row.entity.startswith(entity) and row.slope is not None
    ]
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


def _traffic(link: _Link, readings: Mapping[str, list[ReadingSummaryRow]]) -> list[str]:
    """Messages per second in each direction, from the end that reports them."""
    found = []
    for near, far in ((link.source, link.target), (link.target, link.source)):
        rate = _rate(readings[near], "deliveriesOut", entity=f"connection/{far}/")
        if rate is None:
            rate = _rate(readings[far], "deliveriesIn", entity=f"connection/{near}/")
        if rate is not None and rate >= _SMALLEST:
            found.append(f"{near} → {far} {formats.rate(rate)}/s")
    return found


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
