"""What does the reference server do to the messages of each destination?

A scenario is written by a test and read by the server: a distribution of delays and a number of planted faults for each
route, and the times at which the whole server stalls. Which messages the faults hit is drawn by the server, and only
its truth files tell.
"""

import random
from collections.abc import Callable

from msgspec import Struct

MS = 1_000_000
BARE = "bare"
"""The name of a route without delay."""

_FIRST_FAULT = 10
_FAULT_SPACING = 4  # a swap concerns two messages, and a late copy should not be mistaken for one


class Delay(Struct, frozen=True, tag_field="kind", tag="constant"):
    """Always the same."""

    ns: int = 0

    def draws(self, generator: random.Random) -> Callable[[], int]:
        return lambda: self.ns


class Exponential(Struct, frozen=True, tag_field="kind", tag="exponential"):
    mean_ns: int = 5 * MS

    def draws(self, generator: random.Random) -> Callable[[], int]:
        return lambda: int(generator.expovariate(1 / self.mean_ns))


class Bimodal(Struct, frozen=True, tag_field="kind", tag="bimodal"):
    """Mostly quick, sometimes slow."""

    quick_ns: int = 2 * MS
    slow_ns: int = 30 * MS
    slow_share: float = 0.05

    def draws(self, generator: random.Random) -> Callable[[], int]:
        return lambda: self.slow_ns if generator.random() < self.slow_share else self.quick_ns


class HeavyTail(Struct, frozen=True, tag_field="kind", tag="heavy tail"):
    """Pareto, cut off so that a run ends in time. With this shape its variance would be infinite."""

    least_ns: int = 1 * MS
    shape: float = 1.2
    most_ns: int = 400 * MS

    def draws(self, generator: random.Random) -> Callable[[], int]:
        return lambda: min(int(self.least_ns * generator.paretovariate(self.shape)), self.most_ns)


class Faults(Struct, frozen=True):
    """How many of the first `among` messages of a destination are lost, sent twice, or sent after the next one."""

    among: int = 0
    lost: int = 0
    duplicated: int = 0
    swapped: int = 0

    def positions(self, generator: random.Random) -> tuple[set[int], set[int], set[int]]:
        count = self.lost + self.duplicated + self.swapped
        drawn = generator.sample(range(_FIRST_FAULT, self.among, _FAULT_SPACING), count) if count else []
        lost, rest = drawn[: self.lost], drawn[self.lost :]
        return set(lost), set(rest[: self.duplicated]), set(rest[self.duplicated :])


class Route(Struct, frozen=True):
    """What happens to the messages of one destination."""

    delay: Delay | Exponential | Bimodal | HeavyTail = Delay()
    faults: Faults = Faults()


DISTRIBUTIONS = {
    BARE: Route(),
    "constant": Route(Delay(5 * MS)),
    "exponential": Route(Exponential()),
    "bimodal": Route(Bimodal()),
    "heavy-tail": Route(HeavyTail()),
}
"""Routes that differ in their delays alone."""


class Stall(Struct, frozen=True):
    """The server reads nothing and writes nothing for this long, beginning this long after its first message."""

    after_ns: int
    length_ns: int


class Scenario(Struct, frozen=True):
    seed: int
    routes: dict[str, Route]
    stalls: list[Stall] = []


def destination_of(protocol: str, route: str) -> str:
    """Every protocol has a destination of its own for each route."""
    return f"{protocol}-{route}"
