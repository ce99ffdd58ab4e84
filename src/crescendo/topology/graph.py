"""What is a network of routers and brokers?

Frozen values: nodes with their machines and the configuration that the user wrote for them, and links with costs.
Knows neither files nor programs' formats, and generates nothing.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

NodeType = Literal["router", "broker", "client"]
ROUTER: NodeType = "router"
BROKER: NodeType = "broker"
CLIENT: NodeType = "client"

ROUTER_PROGRAMS = ("relay", "qpid-dispatch", "skupper-router")
RABBITMQ = "rabbitmq"
BROKER_PROGRAMS = ("artemis", "activemq", RABBITMQ, "qpid-broker-j")

Entry = dict[str, Any]
"""One entry of a configuration section: attribute names and values."""

_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"  # also the name of a directory
MAX_COST = 2**31 - 1


class GraphNode(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router, a broker, or a machine with clients."""

    id: Annotated[str, Meta(pattern=_NAME)]
    type: NodeType
    program: str = ""
    machine: str = ""  # its name in the inventory; several nodes may share one
    address: str = ""  # where others reach it
    shares_machine: bool = False  # with other nodes
    known: bool = True  # whether the inventory has this machine, or there is no inventory
    group: str | None = None
    default_listeners: bool = True
    default_connectors: bool = True
    default_addresses: bool = True
    sections: dict[str, list[Entry]] = field(default_factory=dict)  # what the user wrote

    @property
    def names(self) -> frozenset[str]:
        """How a connector may refer to it."""
        return frozenset({self.id, self.machine, self.address})


class GraphLink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A connection between two nodes. The cost is None where the user gave none; routers then count it as 1."""

    source: str
    target: str
    cost: Annotated[int, Meta(ge=1, le=MAX_COST)] | None = None
    via: str | None = None  # how brokers are joined, or how a router reaches a broker
    addresses: list[str] = field(default_factory=list)  # the addresses that cross this link; empty: all
    options: dict[str, Any] = field(default_factory=dict)  # attributes of the connector, as its program calls them

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


class Graph(Struct, frozen=True, forbid_unknown_fields=True):
    """A network. Nodes and links are in one fixed order, whatever the order in the file was."""

    nodes: tuple[GraphNode, ...]
    links: tuple[GraphLink, ...]
    directed: bool = False

    def by_id(self) -> dict[str, GraphNode]:
        return {node.id: node for node in self.nodes}

    def neighbours(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for link in self.links:
            found[link.source].append(link.target)
            found[link.target].append(link.source)
        return found


def queue_address(program: str, queue: str) -> str:
    """How AMQP 1.0 clients call a queue that the node has already.

    To RabbitMQ 3 a plain name means a queue that it declares, and it refuses one that is there with another durability.
    """
    return f"/amq/queue/{queue}" if program == RABBITMQ else queue


_TYPE_ORDER = {ROUTER: 0, BROKER: 1, CLIENT: 2}


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key in which router2 comes before router10."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part)


def ordered(nodes: list[GraphNode], links: list[GraphLink], *, directed: bool) -> Graph:
    """The graph in its fixed order. An undirected link starts at the end that comes first."""
    nodes = sorted(nodes, key=lambda node: (_TYPE_ORDER[node.type], natural(node.id), node.id))
    rank = {node.id: at for at, node in enumerate(nodes)}
    if not directed:
        links = [link if rank[link.source] <= rank[link.target] else _turned(link) for link in links]

    def key(link: GraphLink) -> tuple[Any, ...]:
        options = msgspec.json.encode(link.options, order="deterministic")
        return rank[link.source], rank[link.target], link.cost or 0, link.via or "", link.addresses, options

    return Graph(tuple(nodes), tuple(sorted(links, key=key)), directed)


def _turned(link: GraphLink) -> GraphLink:
    return msgspec.structs.replace(link, source=link.target, target=link.source)
