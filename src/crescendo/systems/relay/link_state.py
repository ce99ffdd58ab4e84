"""Which way does a router send a message for another router?

Every router advertises its neighbours, the costs of the links to them, and the addresses that its own clients receive
from. From the newest advertisements of all routers follows the cheapest way to each. A link counts only while both of
its ends advertise it, at the higher of their costs, so a link that one end has lost is not used by anybody. Pure: sends
nothing and reads no clock.
"""

import heapq
from typing import Annotated

from msgspec import Meta, Struct

MAX_ROUTERS = 10_000


class Advertisement(Struct, frozen=True, forbid_unknown_fields=True):
    """What one router says about itself; a higher sequence is newer."""

    router: Annotated[str, Meta(max_length=200)]
    sequence: int
    neighbours: dict[str, int]
    addresses: list[str]


class RouterRoute(Struct, frozen=True):
    """The way to another router."""

    cost: int
    next_hop: str


class LinkState:
    """What this router knows of the network."""

    def __init__(self, router: str, sequence: int = 0) -> None:
        self.router = router
        self._known: dict[str, Advertisement] = {router: Advertisement(router, sequence, {}, [])}
        self._routes: dict[str, RouterRoute] | None = None

    @property
    def own(self) -> Advertisement:
        return self._known[self.router]

    @property
    def advertisements(self) -> list[Advertisement]:
        return list(self._known.values())

    def advertise(self, neighbours: dict[str, int], addresses: list[str]) -> bool:
        """Replace our own links and addresses; returns whether that changed anything."""
        own = self.own
        if own.neighbours == neighbours and own.addresses == sorted(addresses):
            return False
        self._known[self.router] = Advertisement(self.router, own.sequence + 1, dict(neighbours), sorted(addresses))
        self._routes = None
        return True

    def learn(self, advertisement: Advertisement) -> bool:
        """Take what another router advertises; whether it is news, which must be passed on."""
        known = self._known.get(advertisement.router)
        if advertisement.router == self.router or (known is not None and known.sequence >= advertisement.sequence):
            return False
        if known is None and len(self._known) >= MAX_ROUTERS:
            return False
        self._known[advertisement.router] = advertisement
        self._routes = None
        return True

    def routes(self) -> dict[str, RouterRoute]:
        """The cheapest way to every router that can be reached. Equal costs: the next hop that sorts first."""
        if self._routes is None:
            self._routes = self._cheapest()
        return self._routes

    def holders(self, address: str) -> dict[str, RouterRoute]:
        """The other routers that can be reached and have receivers for this address."""
        routes = self.routes()
        return {
            name: routes[name] for name, known in self._known.items() if name in routes and address in known.addresses
        }

    def _cost(self, one: str, other: str) -> int | None:
        there, back = self._known.get(one), self._known.get(other)
        if there is None or back is None or other not in there.neighbours or one not in back.neighbours:
            return None
        return max(there.neighbours[other], back.neighbours[one], 1)

    def _cheapest(self) -> dict[str, RouterRoute]:
        found: dict[str, RouterRoute] = {}
        waiting: list[tuple[int, str, str]] = []
        for name in self.own.neighbours:
            cost = self._cost(self.router, name)
            if cost is not None:
                heapq.heappush(waiting, (cost, name, name))
        while waiting:
            cost, next_hop, name = heapq.heappop(waiting)
            if name in found or name == self.router:
                continue
            found[name] = RouterRoute(cost, next_hop)
            for other in self._known[name].neighbours:
                step = self._cost(name, other)
                if step is not None and other not in found:
                    heapq.heappush(waiting, (cost + step, next_hop, other))
        return found
