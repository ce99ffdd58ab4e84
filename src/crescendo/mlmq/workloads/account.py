"""Has everything that was stored arrived, once?

Keeps what is under way: from before a message is sent until it is both acknowledged and received. A message that comes
again without saying so is a violation; so is one that was stored in a queue that was seen empty later, and that never
came. What cannot be told, because nobody answered or nobody looked, is unresolved. Counts, and keeps the first
sentences of each; reads no clock and asks nobody.
"""

from collections.abc import Hashable
from dataclasses import dataclass

SENTENCES = 20
Message = tuple[int, int]  # sender, number


class ConservationFindings:
    """What was found wrong, and what could not be told: how many, and the first of them in words."""

    def __init__(self) -> None:
        self.violations = 0
        self.unresolved = 0
        self.violated: list[str] = []
        self.untold: list[str] = []

    def violate(self, sentence: str) -> None:
        self.violations += 1
        if len(self.violated) < SENTENCES:
            self.violated.append(sentence)

    def leave_open(self, sentence: str) -> None:
        self.unresolved += 1
        if len(self.untold) < SENTENCES:
            self.untold.append(sentence)


@dataclass(slots=True)
class _Flight:
    place: Hashable
    stored_ns: int | None = None
    received: bool = False


class ReceivedTokens:
    """Which numbers of one sender have come: all below a mark, and some above it."""

    __slots__ = ("_above", "_below")

    def __init__(self) -> None:
        self._below = 0
        self._above: set[int] = set()

    def take(self, number: int) -> bool:
        """Whether it is new."""
        if number < self._below or number in self._above:
            return False
        self._above.add(number)
        while self._below in self._above:
            self._above.discard(self._below)
            self._below += 1
        return True


class ConservationAccount:
    """The messages of all clients in this process. `shared` places are emptied by other processes as well."""

    def __init__(self, findings: ConservationFindings, shared: frozenset[Hashable] = frozenset()) -> None:
        self._findings = findings
        self._shared = shared
        self._flights: dict[Message, _Flight] = {}
        self._arrivals: dict[int, ReceivedTokens] = {}
        self._empty_ns: dict[Hashable, int] = {}

    @property
    def under_way(self) -> int:
        return len(self._flights)

    def sending(self, message: Message, place: Hashable) -> None:
        """Before it leaves: it may arrive before its sender hears that it was stored."""
        self._flights[message] = _Flight(place)

    def refused(self, message: Message) -> None:
        """It was not stored, and that is certain."""
        del self._flights[message]

    def stored(self, message: Message, now_ns: int) -> None:
        flight = self._flights[message]
        flight.stored_ns = now_ns
        if flight.received or flight.place in self._shared:
            del self._flights[message]

    def received(self, message: Message, place: Hashable, redelivered: bool) -> bool:
        """Whether it came for the first time, as far as can be told here."""
        if place in self._shared:
            return True  # the others have their part of it; who sees all parts together is the ledger
        if not self._arrivals.setdefault(message[0], ReceivedTokens()).take(message[1]):
            if not redelivered:
                self._findings.violate(f"message {message[1]} of sender {message[0]} came twice")
            return False
        flight = self._flights.get(message)
        if flight is not None:
            flight.received = True
            if flight.stored_ns is not None:
                del self._flights[message]
        return True

    def empty(self, place: Hashable, asked_ns: int) -> None:
        """Somebody asked then whether anything was left there, and nothing was."""
        self._empty_ns[place] = max(asked_ns, self._empty_ns.get(place, 0))

    def emptied_ns(self, place: Hashable) -> int:
        """When a place was last known to be empty; 0 for never."""
        return self._empty_ns.get(place, 0)

    def close(self) -> None:
        """Judge what is still under way, now that nobody will look again."""
        for (sender, number), flight in self._flights.items():
            name = f"message {number} of sender {sender} to {flight.place}"
            if flight.received:
                continue  # it arrived, so it was stored, whatever its sender heard
            if flight.stored_ns is None:
                self._findings.leave_open(f"{name} was never answered")
            elif self.emptied_ns(flight.place) > flight.stored_ns:
                self._findings.violate(f"{name} was stored, and never came")
            else:
                self._findings.leave_open(f"{name} was stored, and nobody looked there again")
        self._flights.clear()
