"""Where does each node stand in a picture?

A line or a tree is drawn in columns, from left to right by the distance from the first router; in a directed network,
from where messages enter. Anything with rings is placed on a circle and then pulled into shape by its links.
Deterministic: the same graph has the same picture. Draws nothing.
"""

import math
from collections import deque

import numpy as np

from crescendo.topology.address_ways import ways_of
from crescendo.topology.graph import ROUTER, Graph

Point = tuple[float, float]
_ROUNDS = 150
_NEAREST = 0.9  # so that no box covers another
_MAX_PULLED = 400
"""Above this number of nodes, pulling would take long and show nothing; the circle stays."""


def positions(graph: Graph) -> dict[str, Point]:
    """A place for each node, in units of the usual distance between neighbours."""
    names = [node.id for node in graph.nodes]
    if not names:
        return {}
    neighbours = graph.neighbours()
    is_forest = len({frozenset(link.ends) for link in graph.links}) < len(names)
    layers = _layers(graph, neighbours)
    widest = max(sum(1 for layer in layers.values() if layer == each) for each in set(layers.values()))
    if is_forest or widest <= 3:
        return _columns(names, layers, neighbours)
    if len(names) > _MAX_PULLED:
        return _circle(names)
    return _pulled(names, graph)


def _layers(graph: Graph, neighbours: dict[str, list[str]]) -> dict[str, int]:
    """The distance of every node from the end of the network that comes first."""
    routers = [node.id for node in graph.nodes if node.type == ROUTER] or [node.id for node in graph.nodes]
    ends = [name for name in routers if len(set(neighbours[name])) <= 1]
    layers: dict[str, int] = {}
    for starts in (_entries(graph), *([name] for name in (*(ends[:1] or routers[:1]), *routers, *neighbours))):
        waiting = deque(name for name in starts if name not in layers)
        layers |= dict.fromkeys(waiting, 0)
        while waiting:
            name = waiting.popleft()
            for other in neighbours[name]:
                if other not in layers:
                    layers[other] = layers[name] + 1
                    waiting.append(other)
    return layers


def _entries(graph: Graph) -> list[str]:
    """Where messages enter a directed network: at nodes that no link leads to, else where the first address begins."""
    if not graph.directed or not graph.links:
        return []
    targets = {link.target for link in graph.links}
    found = [link.source for link in graph.links if link.source not in targets]
    ways = ways_of(graph)
    return list(dict.fromkeys(found)) or ([ways[min(ways)][0]] if ways else [])


def _columns(names: list[str], layers: dict[str, int], neighbours: dict[str, list[str]]) -> dict[str, Point]:
    """Nodes of one layer stand below each other, near their neighbours to the left."""
    columns: dict[int, list[str]] = {}
    for name in names:
        columns.setdefault(layers[name], []).append(name)
    height: dict[str, float] = {}
    for layer in sorted(columns):
        column = columns[layer]
        wanted = {
            name: _mean([height[other] for other in neighbours[name] if other in height and layers[other] < layer])
            for name in column
        }
        column.sort(key=lambda name: wanted[name])
        for at, name in enumerate(column):
            height[name] = at - (len(column) - 1) / 2
    return {name: (float(layers[name]), height[name]) for name in names}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _circle(names: list[str]) -> dict[str, Point]:
    radius = max(1.0, len(names) / (2 * math.pi))
    turn = 2 * math.pi / len(names)
    return {
        name: (radius * math.cos(at * turn - math.pi / 2), radius * math.sin(at * turn - math.pi / 2))
        for at, name in enumerate(names)
    }


def _pulled(names: list[str], graph: Graph) -> dict[str, Point]:
    """Links pull their ends together, all nodes push each other away (Fruchterman and Reingold)."""
    start = _circle(names)
    places = np.array([start[name] for name in names])
    rank = {name: at for at, name in enumerate(names)}
    joined = np.zeros((len(names), len(names)))
    for link in graph.links:
        a, b = rank[link.source], rank[link.target]
        joined[a, b] = joined[b, a] = 1.0
    for step in range(_ROUNDS):
        apart = places[:, None, :] - places[None, :, :]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 0.01)
        push = 1.0 / distance**2 - joined * distance
        moves = (apart * push[..., None]).sum(axis=1)
        length = np.maximum(np.hypot(moves[:, 0], moves[:, 1]), 1e-9)
        allowed = 0.3 * (1 - step / _ROUNDS)
        places += moves / length[:, None] * np.minimum(length, allowed)[:, None]
    apart = places[:, None, :] - places[None, :, :]
    nearest = float((np.hypot(apart[..., 0], apart[..., 1]) + 1e9 * np.eye(len(names))).min())
    places *= max(1.0, _NEAREST / max(nearest, 0.01))
    return {name: (float(places[at, 0]), float(places[at, 1])) for at, name in enumerate(names)}
