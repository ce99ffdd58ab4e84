"""Where did the time of a request go?

A connection whose system reports how long each of its tiers took keeps spans here, for a sample of its requests: the
whole request as the connection saw it, each tier, and the remainder, the network. The worker takes and records them
once in a while. The number of spans is bounded. Reads no clock.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from crescendo.model.arrays import Int64s

NETWORK = "network"
_MAX_KEPT = 100_000


class Spans(NamedTuple):
    """Spans of one action with the same outcome. One in `sample_every` requests is among them."""

    action: str
    outcome: str
    ended_ns: Int64s
    duration_ns: Int64s
    sample_every: int


@runtime_checkable
class SpanSource(Protocol):
    """A channel that measures spans."""

    def take_spans(self) -> list[Spans]:
        """All spans since the last call."""
        ...


class RequestSpans:
    """The spans of one connection."""

    def __init__(self, sample_every: int) -> None:
        self.sample_every = sample_every
        self._kept: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self._count = 0

    def add(
        self, request: str, outcome: str, requested_ns: int, ended_ns: int, tiers_ns: Iterable[tuple[str, int]]
    ) -> None:
        """Add one request: the whole under its name, each tier under `name/tier`."""
        if self._count >= _MAX_KEPT:
            return  # `take` has not been called for a long time
        remaining_ns = whole_ns = ended_ns - requested_ns
        for tier, duration_ns in tiers_ns:
            self._keep(f"{request}/{tier}", outcome, ended_ns, duration_ns)
            remaining_ns -= duration_ns
        self._keep(f"{request}/{NETWORK}", outcome, ended_ns, remaining_ns)
        self._keep(request, outcome, ended_ns, whole_ns)

    def take(self) -> list[Spans]:
        kept, self._kept, self._count = self._kept, defaultdict(list), 0
        found = []
        for (action, outcome), pairs in kept.items():
            columns = np.array(pairs, np.int64).T
            found.append(Spans(action, outcome, columns[0], columns[1], self.sample_every))
        return found

    def _keep(self, action: str, outcome: str, ended_ns: int, duration_ns: int) -> None:
        self._kept[action, outcome].append((ended_ns, duration_ns))
        self._count += 1
