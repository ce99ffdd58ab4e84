"""What network does a topology file describe?

The file names an inventory and a graph file or a topology type, or holds the nodes and links itself: networkx's
node-link format in YAML or JSON. The result is one graph whose nodes know their machines. Generates no configuration.
"""

import difflib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.topology.graph import (
    BROKER,
    BROKER_PROGRAMS,
    CLIENT,
    ROUTER,
    ROUTER_PROGRAMS,
    Graph,
    GraphLink,
    GraphNode,
    NodeType,
    ordered,
)
from crescendo.topology.graph_types import links_of
from crescendo.topology.inventory import Inventory, InventoryHost, read_inventory
from crescendo.topology.yaml_file import read_mapping

MAX_NODES, MAX_LINKS = 10_000, 100_000
GROUPS: dict[str, NodeType] = {"routers": ROUTER, "brokers": BROKER, "clients": CLIENT}
_FLAGS = {"def_list": "default_listeners", "def_conn": "default_connectors", "def_addr": "default_addresses"}
_NODE_KEYS = {"id", "type", "program", "machine", "address", "group"}
_COSTS = ("value", "cost", "weight")
_MODES = {"inter-router": "interior"}  # what the thesis's samples call it
Port = Annotated[int, Meta(ge=1, le=65_535)]
Distributions = dict[str, str]


class PortBases(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    """The first port of each kind of listener."""

    normal: Port = 5000
    inter_router: Port = 6000
    route_container: Port = 7000
    openwire: Port = 8000
    management: Port = 9000

    def of(self, role: str) -> int:
        base: int = getattr(self, role.replace("-", "_"))
        return base


class TopologyFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a topology file. Those of a graph file may stand in it, too."""

    hostfile: str | None = None
    graph_file: str | None = None
    graph_type: str | None = None
    routers: Annotated[int, Meta(ge=1, le=MAX_NODES)] | None = None
    brokers: Annotated[int, Meta(ge=0, le=MAX_NODES)] = 0
    fanout: Annotated[int, Meta(ge=1, le=1000)] = 2
    cost: Annotated[int, Meta(ge=1)] | None = None
    router_program: str = ""
    broker_program: str = "artemis"
    addresses: Distributions = field(
        default_factory=lambda: {"closest": "closest", "multicast": "multicast", "unicast": "closest"}
    )
    ports: PortBases = PortBases()
    nodes: list[dict[str, Any]] | None = None
    links: list[dict[str, Any]] | None = None
    edges: list[dict[str, Any]] | None = None  # networkx 3.4 and later
    directed: bool = False
    multigraph: bool = False
    graph: Any = None

    def __post_init__(self) -> None:
        sources = [key for key in ("graph_file", "graph_type", "nodes") if getattr(self, key) is not None]
        if len(sources) != 1:
            raise ValueError("give one of graph_file, graph_type and nodes")
        if self.routers is not None and (self.hostfile or not self.graph_type):
            raise ValueError("routers is a number of routers for a graph_type without hostfile")
        for key, program, known in (
            ("router_program", self.router_program, ROUTER_PROGRAMS),
            ("broker_program", self.broker_program, BROKER_PROGRAMS),
        ):
            if program and program not in known:
                raise ValueError(f"{key}: {program!r} is not known; {listing(program, known)}")


class Topology(Struct, frozen=True):
    """A graph, and how its configuration is to be generated."""

    graph: Graph
    addresses: Distributions
    ports: PortBases
    name: str = "topology"
    inventory: str | None = None  # the path of the inventory


def load_topology(path: Path) -> Topology:
    """Read a topology file and the files that it names; relative paths start at its own directory."""
    given = _converted(read_mapping(path, "hostfile and graph_file or graph_type, or nodes and links"), path)
    inventory = read_inventory(path.parent / given.hostfile) if given.hostfile else None
    source, content = path, given
    if given.graph_file is not None:
        source = path.parent / given.graph_file
        content = _converted(read_mapping(source, "nodes and links"), source)
        if content.nodes is None:
            raise ConfigError(f"{source}: expected a graph with nodes and links")
    if given.graph_type is not None:
        nodes, links = _of_type(given, inventory, path)
    else:
        nodes = [_node(entry, at, inventory, source) for at, entry in enumerate(content.nodes or ())]
        links = [_link(entry, at, source) for at, entry in enumerate(content.links or content.edges or ())]
    _check(nodes, links, source, multigraph=content.multigraph)
    places = Counter(node.address for node in nodes if node.type != CLIENT)
    nodes = [_completed(node, given, places) for node in nodes]
    graph = ordered(nodes, links, directed=content.directed)
    hostfile = None if given.hostfile is None else str(path.parent / given.hostfile)
    return Topology(graph, given.addresses, given.ports, path.stem, hostfile)


def _converted(document: dict[str, Any], source: Path) -> TopologyFile:
    known = msgspec.structs.fields(TopologyFile)
    for key in document:
        if key not in {each.name for each in known}:
            raise ConfigError(f"{source}: {key}: there is no such key{_hint(str(key), [each.name for each in known])}")
    try:
        return msgspec.convert(document, TopologyFile)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {explain(str(err), document, TopologyFile)}") from err


def _of_type(given: TopologyFile, inventory: Inventory | None, source: Path) -> tuple[list[GraphNode], list[GraphLink]]:
    if inventory is None:
        if given.routers is None:
            raise ConfigError(f"{source}: graph_type needs hostfile, or the number of routers (routers: 3)")
        routers = [f"router{number}" for number in range(1, given.routers + 1)]
        brokers = [f"broker{number}" for number in range(1, given.brokers + 1)]
    else:
        routers, brokers = list(inventory.group("routers")), list(inventory.group("brokers"))
    links = links_of(str(given.graph_type), routers, brokers, fanout=given.fanout, cost=given.cost)
    nodes = [_placed(GraphNode(id=name, type=ROUTER), inventory) for name in routers]
    return nodes + [_placed(GraphNode(id=name, type=BROKER), inventory) for name in brokers], links


def _node(entry: dict[str, Any], at: int, inventory: Inventory | None, source: Path) -> GraphNode:
    where = f"{source}: nodes[{at}]"
    name = entry.get("id")
    if not isinstance(name, str):
        raise ConfigError(f"{where}: a node needs an id")
    where = f"{source}: node {name}"
    known: dict[str, Any] = {key: value for key, value in entry.items() if key in _NODE_KEYS}
    for flag, attribute in _FLAGS.items():
        if flag in entry:
            known[attribute] = entry[flag]
    sections: dict[str, Any] = {}
    for key, value in entry.items():
        if key in _NODE_KEYS or key in _FLAGS:
            continue
        if key == "mode":
            continue
        entries = [value] if isinstance(value, dict) else value
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            hint = _hint(str(key), [*_NODE_KEYS, *_FLAGS, "mode"])
            raise ConfigError(f"{where}: {key} is neither a key of a node nor a section with attributes{hint}")
        sections[str(key)] = [{str(attribute): inner for attribute, inner in each.items()} for each in entries]
    if "mode" in entry:
        mode = {"mode": _MODES.get(str(entry["mode"]), str(entry["mode"]))}
        written = sections.get("router") or [{}]
        sections["router"] = [{**mode, **written[0]}, *written[1:]]
    if "type" not in known:
        known["type"] = _type_of(name, inventory, where)
    try:
        node = msgspec.convert({**known, "sections": sections}, GraphNode)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{where}: {_flag_names(str(err))}") from err
    programs = {ROUTER: ROUTER_PROGRAMS, BROKER: BROKER_PROGRAMS, CLIENT: ()}[node.type]
    if node.program and node.program not in programs:
        raise ConfigError(
            f"{where}: {node.program!r} is not a program of a {node.type}; {listing(node.program, programs)}"
        )
    return _placed(node, inventory)


def _flag_names(text: str) -> str:
    for flag, attribute in _FLAGS.items():
        text = text.replace(attribute, flag)
    return text


def _type_of(name: str, inventory: Inventory | None, where: str) -> NodeType:
    """The type of a node that does not say it: from its group in the inventory."""
    groups = inventory.hosts[name].groups if inventory and name in inventory.hosts else frozenset()
    found = [kind for group, kind in GROUPS.items() if group in groups]
    if len(found) != 1:
        raise ConfigError(f"{where}: give its type: router, broker or client")
    return found[0]


def _placed(node: GraphNode, inventory: Inventory | None) -> GraphNode:
    """The node with its machine and the address of that machine."""
    machine = node.machine or node.id
    host = InventoryHost(machine, machine, frozenset())
    known = inventory is None or machine in inventory.hosts
    if inventory is not None and known:
        host = inventory.hosts[machine]
    return msgspec.structs.replace(node, machine=machine, address=node.address or host.address, known=known)


def _completed(node: GraphNode, given: TopologyFile, places: Counter[str]) -> GraphNode:
    default = {ROUTER: given.router_program, BROKER: given.broker_program, CLIENT: ""}[node.type]
    shares = places[node.address] > 1
    return msgspec.structs.replace(node, program=node.program or default, shares_machine=shares)


def _link(entry: dict[str, Any], at: int, source: Path) -> GraphLink:
    where = f"{source}: links[{at}]"
    costs = [key for key in _COSTS if key in entry]
    if len(costs) > 1:
        raise ConfigError(f"{where}: {' and '.join(costs)} are both a cost; give one")
    fields = {key: value for key, value in entry.items() if key not in _COSTS and key != "key"}
    if costs:
        fields["cost"] = entry[costs[0]]
    try:
        return msgspec.convert(fields, GraphLink)
    except msgspec.ValidationError as err:
        ends = f" ({entry.get('source')} to {entry.get('target')})"
        raise ConfigError(f"{where}{ends}: {explain(str(err), fields, GraphLink)}") from err


def _check(nodes: list[GraphNode], links: list[GraphLink], source: Path, *, multigraph: bool) -> None:
    if len(nodes) > MAX_NODES or len(links) > MAX_LINKS:
        raise ConfigError(f"{source}: at most {MAX_NODES:,} nodes and {MAX_LINKS:,} links")
    names = Counter(node.id for node in nodes)
    for name, count in names.items():
        if count > 1:
            raise ConfigError(f"{source}: two nodes are called {name}")
    seen: set[frozenset[str]] = set()
    for link in links:
        for end in link.ends:
            if end not in names:
                raise ConfigError(f"{source}: a link names {end}, but no node has that id{_hint(end, list(names))}")
        if link.source == link.target:
            raise ConfigError(f"{source}: {link.source} is linked to itself")
        if frozenset(link.ends) in seen and not multigraph:
            raise ConfigError(
                f"{source}: {link.source} and {link.target} are linked twice; remove one, or set multigraph: true"
            )
        seen.add(frozenset(link.ends))


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
