"""What would not work in this network?

Finds nodes that cannot be reached, listeners that share a port, machines that the inventory does not have, costs that
differ between the ends of a link, links without exactly one connector, connectors that lead nowhere, and loops of
bridges in which messages would circulate. Routers route around loops themselves, so a ring of routers is not one.
Connects to nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from crescendo.topology.generate import AUTO_LINK, NORMAL, Network, WiredLink, role_of_listener, wired_links
from crescendo.topology.graph import BROKER, CLIENT, MAX_COST, ROUTER, Entry, Graph, GraphLink, GraphNode
from crescendo.topology.listener_ports import nodes_by_machine, port_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared, not bound

Problem = Literal["unreachable", "port-clash", "unknown-host", "asymmetric-cost", "link", "connector", "loop"]


class NetworkFinding(Struct, frozen=True):
    """One thing that is wrong, and where."""

    problem: Problem
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def check_network(network: Network) -> list[NetworkFinding]:
    """Everything that is wrong, in a fixed order."""
    wired = wired_links(network)
    return [
        *_unreachable(network.graph),
        *_port_clashes(network),
        *_unknown_hosts(network.graph),
        *_asymmetric_costs(network, wired),
        *_links(network, wired),
        *_connectors(network, wired),
        *_loops(network.graph),
    ]


def _unreachable(graph: Graph) -> Iterator[NetworkFinding]:
    """Everything is compared with the largest connected part."""
    neighbours = graph.neighbours()
    parts: list[list[str]] = []
    seen: set[str] = set()
    for node in graph.nodes:
        if node.id not in seen:
            reached = _reached(node.id, neighbours)
            seen |= reached
            parts.append([each.id for each in graph.nodes if each.id in reached])
    main = max(parts, key=len, default=[])
    for part in parts:
        if part is not main:
            yield NetworkFinding("unreachable", part[0], f"no link leads from {', '.join(part[:5])} to {main[0]}")


def _reached(start: str, neighbours: dict[str, list[str]]) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        for name in neighbours[waiting.pop()]:
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def _port_clashes(network: Network) -> Iterator[NetworkFinding]:
    for nodes in nodes_by_machine(network.graph.nodes):
        listeners: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for node in nodes:
            for entry in network.variables.get(node.id, {}).get("listener", ()):
                port = port_of(entry)
                if port is None:
                    text = f"a listener has the port {entry.get('port')!r}; give a number"
                    yield NetworkFinding("port-clash", node.id, text)
                else:
                    listeners[port].append((node.id, _bound_address(entry)))
        for port, bound in listeners.items():
            addresses = [address for _, address in bound]
            if len(bound) > 1 and (EVERYWHERE in addresses or len(set(addresses)) < len(bound)):
                names = " and ".join(dict.fromkeys(name for name, _ in bound))
                text = f"{len(bound)} listeners of {names} share port {port} of {nodes[0].machine}"
                yield NetworkFinding("port-clash", bound[0][0], text)


def _bound_address(listener: Entry) -> str:
    """Where a listener binds; without a host, or with that of any protocol, on every address of its machine."""
    host = str(listener.get("host") or EVERYWHERE)
    return {"::": EVERYWHERE, "localhost": "127.0.0.1"}.get(host, host)


def _unknown_hosts(graph: Graph) -> Iterator[NetworkFinding]:
    for node in graph.nodes:
        if not node.known:
            yield NetworkFinding("unknown-host", node.id, f"the inventory has no host {node.machine}")


def _asymmetric_costs(network: Network, wired: list[WiredLink]) -> Iterator[NetworkFinding]:
    costs: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for each in wired:
        if each.opener.type == each.acceptor.type == ROUTER:
            stating = [(f"the connector of {each.opener.id}", {"cost": 1} | each.connector)]
            listener = _listener_of(network, each)
            if listener is not None and "cost" in listener:
                stating.append((f"the listener of {each.acceptor.id}", listener))
            for where, entry in stating:
                if (cost := _cost_of(entry)) is None:
                    text = f"{where} has the cost {entry['cost']!r}; give a number from 1 to {MAX_COST:,}"
                    yield NetworkFinding("asymmetric-cost", _named(each.link), text)
                else:
                    costs[id(each.link)].append((where, cost))
    for link in network.graph.links:
        stated = costs[id(link)] + ([("the link", link.cost)] if link.cost is not None else [])
        if len({cost for _, cost in stated}) > 1 and costs[id(link)]:
            differing = ", ".join(f"{cost} for {where}" for where, cost in stated)
            yield NetworkFinding("asymmetric-cost", _named(link), f"the costs differ: {differing}")


def _cost_of(entry: Entry) -> int | None:
    """The cost that a listener or connector states; a number may be written as text."""
    try:
        cost = int(str(entry["cost"]))
    except ValueError:
        return None
    return cost if 1 <= cost <= MAX_COST else None


def _links(network: Network, wired: list[WiredLink]) -> Iterator[NetworkFinding]:
    count = Counter(id(each.link) for each in wired)
    nodes = network.graph.by_id()
    for link in network.graph.links:
        if CLIENT in {nodes[link.source].type, nodes[link.target].type}:
            continue
        if count[id(link)] == 0:
            yield NetworkFinding("link", _named(link), f"neither end connects to the other{_why(nodes, link)}")
        elif count[id(link)] > 1:
            yield NetworkFinding("link", _named(link), "both ends connect to each other, so the link would exist twice")


def _why(nodes: dict[str, GraphNode], link: GraphLink) -> str:
    off = [end for end in link.ends if not nodes[end].default_connectors]
    if off:
        return f"; {' and '.join(off)} has def_conn: no, so write a connector"
    off = [end for end in link.ends if not nodes[end].default_listeners]
    return f"; {' and '.join(off)} has def_list: no, so write a listener" if off else ""


def _connectors(network: Network, wired: list[WiredLink]) -> Iterator[NetworkFinding]:
    belonging = {id(each.connector) for each in wired}
    for node in network.graph.nodes:
        for entry in network.variables.get(node.id, {}).get("connector", ()):
            if id(entry) not in belonging:
                target = f"{entry.get('host')}:{entry.get('port')}"
                yield NetworkFinding("connector", node.id, f"the connector to {target} belongs to no link")
    for each in wired:
        listener = _listener_of(network, each)
        name, port = each.acceptor.id, port_of(each.connector)
        if listener is None:
            yield NetworkFinding(
                "connector", each.opener.id, f"it connects to port {port} of {name}, which has no such listener"
            )
            continue
        offered, asked = str(listener.get("role", NORMAL)), role_of_listener(each.opener, each.acceptor)
        stated = str(each.connector.get("role", NORMAL))
        if each.opener.type == each.acceptor.type == ROUTER and not offered == asked == stated:
            text = (
                f"its connector to {name} has the role {stated} and the listener there {offered}; both must be {asked}"
            )
            yield NetworkFinding("connector", each.opener.id, text)


def _listener_of(network: Network, wired: WiredLink) -> Entry | None:
    for entry in network.variables.get(wired.acceptor.id, {}).get("listener", ()):
        if port_of(entry) == port_of(wired.connector):
            found: Entry = entry
            return found
    return None


def _loops(graph: Graph) -> Iterator[NetworkFinding]:
    """Bridges between brokers that lead back to where they began, for addresses that cross all of them."""
    bridges = [*_bridges(graph), *(_auto_links(graph) if graph.directed else ())]
    addresses = sorted({address for link in bridges for address in link.addresses}) or [""]
    reported: set[tuple[str, ...]] = set()
    for address in addresses:
        crossing = [link for link in bridges if not link.addresses or address in link.addresses]
        loop = _directed_loop(crossing) if graph.directed else _undirected_loop(crossing)
        if loop and tuple(loop) not in reported:
            reported.add(tuple(loop))
            what = f"messages to {address}" if address else "messages"
            yield NetworkFinding("loop", loop[0], f"{what} would circulate: {' > '.join([*loop, loop[0]])}")


def _bridges(graph: Graph) -> Iterator[GraphLink]:
    nodes = graph.by_id()
    return (link for link in graph.links if nodes[link.source].type == nodes[link.target].type == BROKER)


def _auto_links(graph: Graph) -> Iterator[GraphLink]:
    """Auto links with a direction: a router takes from one broker and gives to another, as a bridge does.

    Routers that reach each other count as one, because messages find their way between them.
    """
    nodes = graph.by_id()
    routers: dict[str, list[str]] = {node.id: [] for node in graph.nodes if node.type == ROUTER}
    for link in graph.links:
        if link.source in routers and link.target in routers:
            routers[link.source].append(link.target)
            routers[link.target].append(link.source)
    one_of: dict[str, str] = {}
    for name in routers:
        for reached in _reached(name, routers) if name not in one_of else ():
            one_of[reached] = name
    for link in graph.links:
        types = {nodes[end].type: end for end in link.ends}
        if link.via == AUTO_LINK and set(types) == {ROUTER, BROKER}:
            yield msgspec.structs.replace(
                link,
                source=one_of.get(link.source, link.source),
                target=one_of.get(link.target, link.target),
                addresses=link.addresses or [types[BROKER]],
            )


def _undirected_loop(links: Iterable[GraphLink]) -> list[str]:
    """A bridge without a direction carries messages both ways; that alone is not a loop."""
    tree: dict[str, list[str]] = defaultdict(list)
    for link in links:
        if link.source in tree and link.target in _reached(link.source, tree):
            return _path(tree, link.source, link.target)
        tree[link.source].append(link.target)
        tree[link.target].append(link.source)
    return []


def _directed_loop(links: Iterable[GraphLink]) -> list[str]:
    after: dict[str, list[str]] = defaultdict(list)
    for link in links:
        after[link.source].append(link.target)
        after.setdefault(link.target, [])
    for start, following in after.items():
        for first in following:
            if start in _reached(first, after):
                return [start, *_path(after, first, start)[:-1]]
    return []


def _path(neighbours: dict[str, list[str]], start: str, end: str) -> list[str]:
    before: dict[str, str] = {}
    waiting, seen = [start], {start}
    for name in waiting:
        for other in neighbours[name]:
            if other not in seen:
                seen.add(other)
                before[other] = name
                waiting.append(other)
    path = [end]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


def _named(link: GraphLink) -> str:
    return f"{link.source}–{link.target}"
