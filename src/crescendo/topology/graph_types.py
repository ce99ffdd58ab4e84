"""Which links does a topology type have?

A type joins routers in the order in which they are given, and attaches every broker to one router; only `line-mixed`
puts brokers between routers. Brokers are never joined to each other, and one broker never closes a ring.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.topology.graph import GraphLink

Names = Sequence[str]
Pairs = list[tuple[str, str]]
DIRECT_COST, SPARE_COST = 1, 5
"""The costs of the redundant pair: of each link over the first router in the middle, and over the second."""


def links_of(graph_type: str, routers: Names, brokers: Names, *, fanout: int, cost: int | None) -> list[GraphLink]:
    """The links of a type."""
    name = graph_type.removesuffix("_graph").replace("_", "-")
    name = "line-mixed" if name == "line-mix" else name  # what the thesis's generator calls it
    if name == "redundant":
        return _redundant(routers, brokers)
    build = _TYPES.get(name)
    if build is None:
        raise ConfigError(f"graph_type: no type is called {graph_type!r}; {listing(graph_type, TYPE_NAMES)}")
    if not routers:
        raise ConfigError(f"graph_type {graph_type}: the inventory has no routers; put them into the group routers")
    return [GraphLink(source=a, target=b, cost=cost) for a, b in build(routers, brokers, fanout)]


def _line(routers: Names, brokers: Names, _: int) -> Pairs:
    """Routers in a line, the first half of the brokers at its beginning, the others at its end."""
    half = (len(brokers) + 1) // 2
    ends = [(routers[0], broker) for broker in brokers[:half]] + [(routers[-1], broker) for broker in brokers[half:]]
    return list(pairwise(routers)) + ends


def _line_mixed(routers: Names, brokers: Names, _: int) -> Pairs:
    """A broker between two routers, as far as there are brokers; further brokers are attached in turn."""
    between = min(len(brokers), len(routers) - 1)
    pairs: Pairs = []
    for at, (left, right) in enumerate(pairwise(routers)):
        pairs += [(left, brokers[at]), (right, brokers[at])] if at < between else [(left, right)]
    return pairs + _attached(routers, brokers[between:])


def _cycle(routers: Names, brokers: Names, _: int) -> Pairs:
    if len(routers) < 3:
        raise ConfigError("graph_type cycle: a cycle needs three routers or more; use line for fewer")
    return [*pairwise(routers), (routers[-1], routers[0]), *_attached(routers, brokers)]


def _complete(routers: Names, brokers: Names, _: int) -> Pairs:
    return [*combinations(routers, 2), *_attached(routers, brokers)]


def _bus(routers: Names, brokers: Names, _: int) -> Pairs:
    """A line of routers with brokers attached all along it."""
    return [*pairwise(routers), *_attached(routers, brokers)]


def _star(routers: Names, brokers: Names, _: int) -> Pairs:
    """Every router joined to the first one; brokers at the points of the star."""
    points = routers[1:]
    return [(routers[0], point) for point in points] + _attached(points or routers, brokers)


def _tree(routers: Names, brokers: Names, fanout: int) -> Pairs:
    """Each router has up to `fanout` routers below it; brokers at the leaves."""
    pairs = [(routers[(at - 1) // fanout], name) for at, name in enumerate(routers) if at > 0]
    inner = {parent for parent, _ in pairs}
    return pairs + _attached([name for name in routers if name not in inner], brokers)


def _mesh(routers: Names, brokers: Names, _: int) -> Pairs:
    """A grid, as square as possible: each router is joined to its right and its lower neighbour."""
    columns = math.ceil(math.sqrt(len(routers)))
    pairs: Pairs = []
    for at, name in enumerate(routers):
        if (at + 1) % columns and at + 1 < len(routers):
            pairs.append((name, routers[at + 1]))
        if at + columns < len(routers):
            pairs.append((name, routers[at + columns]))
    return pairs + _attached(routers, brokers)


def _redundant(routers: Names, brokers: Names) -> list[GraphLink]:
    """The first router reaches the last one over the second at a low cost, and over the others at a high one."""
    if len(routers) < 4:
        raise ConfigError("graph_type redundant: it needs four routers: first, direct, spare, last")
    first, direct, *spares, last = routers
    links = [GraphLink(source=a, target=b, cost=DIRECT_COST) for a, b in ((first, direct), (direct, last))]
    links += [
        GraphLink(source=a, target=b, cost=SPARE_COST) for spare in spares for a, b in ((first, spare), (spare, last))
    ]
    return links + [GraphLink(source=a, target=b) for a, b in _attached(routers, brokers)]


def _attached(routers: Names, brokers: Names) -> Pairs:
    """Every broker at one router, in turn."""
    return [(routers[at % len(routers)], broker) for at, broker in enumerate(brokers)]


_TYPES: dict[str, Callable[[Names, Names, int], Pairs]] = {
    "line": _line,
    "line-mixed": _line_mixed,
    "cycle": _cycle,
    "complete": _complete,
    "bus": _bus,
    "star": _star,
    "tree": _tree,
    "mesh": _mesh,
}
TYPE_NAMES = (*_TYPES, "redundant")
