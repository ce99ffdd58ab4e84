"""Which listeners, connectors, addresses and link routes does each node need?

Listeners of all nodes come first, because a connector names the port of a listener. Every link gets one connector, at
one of its ends, with the cost of the link. What the user wrote is kept, every entry of it, and comes first; defaults
are added unless the user switched them off. The result depends on the graph alone. Writes no files.
"""

import ipaddress
from typing import Any

from msgspec import Struct

from crescendo.topology.graph import BROKER, CLIENT, ROUTER, Entry, Graph, GraphLink, GraphNode, queue_address
from crescendo.topology.listener_ports import ListenerPorts, names_node, port_of, roles_of
from crescendo.topology.topology_file import Topology

NORMAL, INTER_ROUTER, ROUTE_CONTAINER = "normal", "inter-router", "route-container"
OPENWIRE, MANAGEMENT, BRIDGE = "openwire", "management", "bridge"
LINK_ROUTE, AUTO_LINK = "linkRoute", "autoLink"
FEDERATION, CLUSTER = "federation", "cluster"
SECTIONS = ("router", "broker", "listener", "connector", "address", LINK_ROUTE, AUTO_LINK, "queue")
"""The sections that are generated, in the order of the output."""

_ANONYMOUS: Entry = {"authenticatePeer": "no", "saslMechanisms": "ANONYMOUS"}
_OPENS = {
    "shovel": "rabbitmq",
    "amqp-bridge": "artemis",
    "bridge": "artemis",
    CLUSTER: "artemis",
    "network-connector": "activemq",
}
"""Which program opens a link of this kind, whatever the direction of its messages."""

_SPEAKS_AMQP = ("artemis", "rabbitmq")
"""Programs that open connections to brokers of other kinds. ActiveMQ joins ActiveMQ alone, Broker-J nobody."""

Variables = dict[str, Any]


class Network(Struct, frozen=True):
    """The configuration of every router and broker, by its id."""

    topology: Topology
    variables: dict[str, Variables]

    @property
    def graph(self) -> Graph:
        return self.topology.graph

    def document(self) -> dict[str, Any]:
        """What templates and Ansible read."""
        return {"confs": [self.variables[node.id] for node in self.graph.nodes if node.id in self.variables]}


class WiredLink(Struct, frozen=True):
    """A link, the node that opens it, the connector there, and the node that accepts it."""

    link: GraphLink
    opener: GraphNode
    acceptor: GraphNode
    connector: Entry


def generate(topology: Topology) -> Network:
    graph = topology.graph
    configured = [node for node in graph.nodes if node.type != CLIENT]
    ports = ListenerPorts(configured)
    nodes, neighbours = graph.by_id(), graph.neighbours()
    variables: dict[str, Variables] = {}
    for at, node in enumerate(configured):
        others = [nodes[name] for name in neighbours[node.id]]
        variables[node.id] = _sections(node)
        _add_identity(variables[node.id], node, others)
        _add_listeners(variables[node.id], node, others, topology, ports, at)
        _add_addresses(variables[node.id], node, topology)
    for link in graph.links:
        source, target = nodes[link.source], nodes[link.target]
        if CLIENT not in {source.type, target.type}:
            _add_connector(variables, link, source, target, directed=graph.directed)
    return Network(topology, {name: _tidy(values) for name, values in variables.items()})


def _sections(node: GraphNode) -> Variables:
    written = {name: [dict(entry) for entry in entries] for name, entries in sorted(node.sections.items())}
    return {"machine": node.id, **{name: written.get(name, []) for name in SECTIONS}, **written}


def _tidy(values: Variables) -> Variables:
    return {name: value for name, value in values.items() if value}


def _add_identity(values: Variables, node: GraphNode, others: list[GraphNode]) -> None:
    if node.type == BROKER:
        values["broker"] = [{"id": node.id, "program": node.program}, *values["broker"]]
        return
    mode = "interior" if any(other.type == ROUTER for other in others) else "standalone"
    written = values["router"] or [{}]
    values["router"] = [{"id": node.id, "mode": mode, **written[0]}, *written[1:]]


# -- listeners ---------------------------------------------------------------------------------------------------------


def _add_listeners(
    values: Variables, node: GraphNode, others: list[GraphNode], topology: Topology, ports: ListenerPorts, at: int
) -> None:
    if not node.default_listeners:
        return
    written = roles_of(values["listener"])
    for role, attributes in _default_listeners(node, others).items():
        if role not in written:
            port = ports.next(node, role, topology.ports.of(role) + at)
            host = "127.0.0.1" if role == MANAGEMENT else _bind_address(node)
            values["listener"].append({"host": host, "role": role, "port": port, **attributes})


def _default_listeners(node: GraphNode, others: list[GraphNode]) -> dict[str, Entry]:
    if node.type == BROKER:
        openwire: dict[str, Entry] = {OPENWIRE: {}} if node.program == "activemq" else {}
        return {NORMAL: {}, **openwire, MANAGEMENT: {}}
    types = {other.type for other in others}
    found: dict[str, Entry] = {INTER_ROUTER: {}} if ROUTER in types else {}
    if BROKER in types:
        found[ROUTE_CONTAINER] = _ANONYMOUS
    return found | {NORMAL: _ANONYMOUS}


def _bind_address(node: GraphNode) -> str:
    """All interfaces, except for a node that others reach over the loopback interface: then only that."""
    if node.address == "localhost":
        return "127.0.0.1"
    try:
        return node.address if ipaddress.ip_address(node.address).is_loopback else "0.0.0.0"  # noqa: S104 - as in the thesis
    except ValueError:
        return "0.0.0.0"  # noqa: S104


def _add_addresses(values: Variables, node: GraphNode, topology: Topology) -> None:
    if node.type != ROUTER or not node.default_addresses:
        return
    written = {entry.get("prefix") for entry in values["address"]}
    for prefix, distribution in topology.addresses.items():
        if prefix not in written:
            values["address"].append({"prefix": prefix, "distribution": distribution})


# -- connectors --------------------------------------------------------------------------------------------------------


def _add_connector(
    variables: dict[str, Variables], link: GraphLink, source: GraphNode, target: GraphNode, *, directed: bool
) -> None:
    if written_connectors(source, target) or written_connectors(target, source):
        return  # the user wrote this link's connector
    for opener, acceptor in _directions(link, source, target, directed=directed):
        listener = _listener_for(variables, opener, acceptor)
        if opener.default_connectors and listener is not None:
            way = "both" if not directed else "out" if opener is source else "in"
            _connect(variables[opener.id], link, opener, acceptor, listener, way)
            break
    for broker in (source, target):
        if broker.type == BROKER:
            _add_queues(variables[broker.id], link)
            if link.via == CLUSTER and {CLUSTER: True} not in variables[broker.id]["broker"]:
                variables[broker.id]["broker"].append({CLUSTER: True})  # both ends must be members


def written_connectors(opener: GraphNode, acceptor: GraphNode) -> list[Entry]:
    """The connectors to a neighbour that the user wrote."""
    return [entry for entry in opener.sections.get("connector", ()) if names_node(entry, acceptor)]


def _directions(
    link: GraphLink, source: GraphNode, target: GraphNode, *, directed: bool
) -> list[tuple[GraphNode, GraphNode]]:
    """Which end opens the connection, best first. A router opens the one to a broker."""
    if {source.type, target.type} == {ROUTER, BROKER}:
        return [(source, target) if source.type == ROUTER else (target, source)]
    both = [(source, target), (target, source)]
    if directed and source.type == ROUTER:
        return both[:1]
    if link.via == FEDERATION and directed:  # the broker that wants the messages fetches them
        both.reverse()
    # Where neither can, the first is asked, and its rendering says why not.
    return [ends for ends in both if _can_open(link, *ends)] or both[:1]


def _can_open(link: GraphLink, opener: GraphNode, acceptor: GraphNode) -> bool:
    if opener.type == ROUTER:
        return True
    if link.via in _OPENS:
        return opener.program == _OPENS[link.via]
    return opener.program in _SPEAKS_AMQP or opener.program == acceptor.program == "activemq"


def role_of_listener(opener: GraphNode, acceptor: GraphNode) -> str:
    """The listener that a connection between these nodes needs."""
    if acceptor.type == ROUTER:
        return INTER_ROUTER if opener.type == ROUTER else ROUTE_CONTAINER
    return OPENWIRE if opener.program == acceptor.program == "activemq" else NORMAL


def _listener_for(variables: dict[str, Variables], opener: GraphNode, acceptor: GraphNode) -> Entry | None:
    role = role_of_listener(opener, acceptor)
    for entry in variables[acceptor.id]["listener"]:
        if str(entry.get("role", NORMAL)) == role and port_of(entry) is not None:
            found: Entry = entry
            return found
    return None


def _connect(
    values: Variables, link: GraphLink, opener: GraphNode, acceptor: GraphNode, listener: Entry, way: str
) -> None:
    port = port_of(listener)
    if opener.type == acceptor.type == ROUTER:
        cost = {} if link.cost is None else {"cost": link.cost}
        values["connector"].append(
            {"host": acceptor.address, "role": INTER_ROUTER, "port": port, **cost, **link.options}
        )
        return
    connector: Entry = {"name": acceptor.id, "host": acceptor.address, "port": port}
    if opener.type == ROUTER:
        connector["name"] = _unused_name(values, acceptor.id)
        values["connector"].append({**connector, "role": ROUTE_CONTAINER, **link.options})
        _add_broker_routes(values, link, connector["name"], acceptor, way)
        return
    via = {} if link.via is None else {"via": link.via}
    via["direction"] = way  # of the messages, seen from here
    addresses = {"addresses": link.addresses} if link.addresses else {}
    values["connector"].append({**connector, "role": BRIDGE, **via, **addresses, **link.options})


def _unused_name(values: Variables, name: str) -> str:
    """Link routes and auto links call a connector by its name, and two links may lead to the same broker."""
    taken, number, found = {entry.get("name") for entry in values["connector"]}, 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def _add_broker_routes(values: Variables, link: GraphLink, connection: str, broker: GraphNode, way: str) -> None:
    """What of the network goes through this broker: by default, the addresses that begin with its name.

    An auto link with a direction makes no waypoint: the router takes from the queue of one broker and gives to another.
    """
    for address in link.addresses or [broker.id]:
        called = queue_address(broker.program, address)
        external = {"externalAddress": called} if called != address else {}
        if link.via == AUTO_LINK and way != "both":
            entry = {"address": address, "connection": connection, "direction": way}
            values[AUTO_LINK].append({**entry, **external})
        elif link.via == AUTO_LINK:
            values["address"].append({"prefix": address, "waypoint": "yes"})
            # From the broker into the network, and from the network into the broker.
            values[AUTO_LINK] += [
                {"address": address, "connection": connection, "direction": each, **external} for each in ("in", "out")
            ]
        else:
            values[LINK_ROUTE] += [
                {"prefix": address, "connection": connection, "direction": each} for each in ("in", "out")
            ]


def _add_queues(values: Variables, link: GraphLink) -> None:
    """The addresses of a link are queues of its brokers."""
    written = {entry.get("name") for entry in values["queue"]}
    values["queue"] += [{"name": address} for address in link.addresses if address not in written]


def _carries(entry: Entry, link: GraphLink, opener: GraphNode) -> bool:
    """Whether a bridge is that of this link: several links may join the same brokers, in both directions."""
    if entry.get("role") != BRIDGE or "direction" not in entry:
        return True
    way = "out" if opener.id == link.source else "in"
    return entry["direction"] in {"both", way} and list(entry.get("addresses", ())) == link.addresses


def wired_links(network: Network) -> list[WiredLink]:
    """Every connector of every node that belongs to a link, with that link."""
    nodes = network.graph.by_id()
    owners: dict[tuple[str, int | None], str] = {}
    for node in network.graph.nodes:
        ports = [port_of(entry) for entry in network.variables.get(node.id, {}).get("listener", ())]
        owners |= {(name, port): node.id for name in node.names for port in ports}
    found = []
    used: set[int] = set()
    for link in network.graph.links:
        ends = nodes[link.source], nodes[link.target]
        for opener, acceptor in (ends, ends[::-1]):
            for entry in network.variables.get(opener.id, {}).get("connector", ()):
                # Several nodes may share a machine; then the port decides which one is meant.
                host = str(entry.get("host"))
                owner = owners.get((host, port_of(entry)), acceptor.id)
                leads_there = host in acceptor.names and owner == acceptor.id
                if id(entry) not in used and leads_there and _carries(entry, link, opener):
                    used.add(id(entry))
                    found.append(WiredLink(link, opener, acceptor, entry))
                    break
    return found
