"""On which ports do the nodes of a network listen?

Every listener of a machine gets its own port. Ports that the user wrote are kept, and a listener takes the port that a
connector written by the user expects of it. All others count up from the first port of their role. Opens no socket.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from crescendo.model.errors import ConfigError
from crescendo.model.protocols import AMQP10
from crescendo.topology.graph import Entry, GraphNode

_LAST = 65_535


class ListenerPorts:
    """The ports that are taken, per machine."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        nodes = list(nodes)
        self._taken = _taken_by_node(nodes)
        for node in nodes:
            taken = self._taken[node.id]
            for entry in node.sections.get("listener", ()):
                if (port := port_of(entry)) is not None:
                    taken.add(port)
        # A connector that the user wrote expects a listener on this port, so no other listener may take it.
        self._expected: dict[tuple[str, str], list[int]] = {}
        by_id = {node.id: node for node in nodes}
        by_place = {name: node for node in nodes for name in (node.machine, node.address)}
        for node in nodes:
            for entry in node.sections.get("connector", ()):
                host, port = str(entry.get("host")), port_of(entry)
                target = by_id.get(host) or by_place.get(host)
                if target is None or target is node or port is None or port in self._taken[target.id]:
                    continue
                self._taken[target.id].add(port)
                role = str(entry.get("role", _role_between(node, target)))
                self._expected.setdefault((target.id, role), []).append(port)

    def next(self, node: GraphNode, role: str, first: int) -> int:
        """The port of a new listener of this node."""
        expected = self._expected.get((node.id, role))
        if expected:
            return expected.pop(0)
        taken = self._taken[node.id]
        port = first
        while port in taken:
            port += 1
        if port > _LAST:
            raise ConfigError(f"no port from {first} on is free for a listener of {node.id} on {node.machine}")
        taken.add(port)
        return port


def _taken_by_node(nodes: Iterable[GraphNode]) -> dict[str, set[int]]:
    """An empty set for every node; nodes on one machine have the same one."""
    found: dict[str, set[int]] = {}
    for members in nodes_by_machine(nodes):
        shared: set[int] = set()
        found |= {node.id: shared for node in members}
    return found


def nodes_by_machine(nodes: Iterable[GraphNode]) -> list[list[GraphNode]]:
    """The nodes that share a machine: it may have several addresses, and an address belongs to one machine."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    nodes = list(nodes)
    for node in nodes:
        parent[root(node.machine or node.address)] = root(node.address)
    found: dict[str, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        found[root(node.address)].append(node)
    return list(found.values())


def port_of(entry: Mapping[str, object]) -> int | None:
    """The port of a listener or connector; a number may be written as text."""
    port = entry.get("port")
    if isinstance(port, int) and not isinstance(port, bool):
        return port
    if isinstance(port, str) and port.isascii() and port.isdigit():
        return int(port)
    return AMQP10.schemes.get(str(port))


def reached_at(host: object) -> str:
    """An address at which a listener is reached from its own machine."""
    return "127.0.0.1" if host in {None, "", "0.0.0.0", "::"} else str(host)  # noqa: S104 - compared, not bound


def _role_between(source: GraphNode, target: GraphNode) -> str:
    return "inter-router" if source.type == target.type == "router" else "normal"


def names_node(connector: Mapping[str, object], node: GraphNode) -> bool:
    """Whether a connector that the user wrote leads to this node.

    Several nodes may share a machine; then its address alone does not say which one is meant.
    """
    host, port = str(connector.get("host")), port_of(connector)
    if host == node.id or (host in node.names and not node.shares_machine):
        return True
    return host in node.names and port in {port_of(entry) for entry in node.sections.get("listener", ())}


def roles_of(entries: Iterable[Entry]) -> set[str]:
    return {str(entry.get("role", "normal")) for entry in entries}
