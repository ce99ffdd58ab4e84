"""Where did the time of a request go?

A connection whose system tells how long each of its tiers took keeps that here, for a share of its requests: the whole
as the connection saw it, each tier, and what is left of it, the network. Whoever records takes it from here once in a
while. What is kept is bounded; reads no clock.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

NETWORK = "network"
_MAX_KEPT = 100_000
Int64s = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Spans of one action that ended alike. `of` says that one of so many requests is here."""

    action: str
    outcome: str
    ended_ns: Int64s
    duration_ns: Int64s
    of: int


@runtime_checkable
class SpanSource(Protocol):
    """A channel that has spans to tell."""

    def take_spans(self) -> list[Spans]:
        """All since the last time."""
        ...


class RequestSpans:
    """The spans of one connection."""

    def __init__(self, of: int) -> None:
        self.of = of
        self._kept: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self._count = 0

    def add(
        self, request: str, outcome: str, asked_ns: int, ended_ns: int, tiers_ns: Iterable[tuple[str, int]]
    ) -> None:
        """One request: the whole is called by its name, each tier by the name, a slash and its own."""
        if self._count >= _MAX_KEPT:
            return  # nobody has taken any for a long time
        left_ns = whole_ns = ended_ns - asked_ns
        for tier, duration_ns in tiers_ns:
            self._keep(f"{request}/{tier}", outcome, ended_ns, duration_ns)
            left_ns -= duration_ns
        self._keep(f"{request}/{NETWORK}", outcome, ended_ns, left_ns)
        self._keep(request, outcome, ended_ns, whole_ns)

    def take(self) -> list[Spans]:
        kept, self._kept, self._count = self._kept, defaultdict(list), 0
        found = []
        for (action, outcome), pairs in kept.items():
            columns = np.array(pairs, np.int64).T
            found.append(Spans(action, outcome, columns[0], columns[1], self.of))
        return found

    def _keep(self, action: str, outcome: str, ended_ns: int, duration_ns: int) -> None:
        self._kept[action, outcome].append((ended_ns, duration_ns))
        self._count += 1
