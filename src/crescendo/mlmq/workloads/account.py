"""Was every stored message received, exactly once?

Tracks messages in flight: from before a message is sent until it is both acknowledged and received. An unmarked
duplicate is a violation; so is a message that was stored in a queue, never received, and not there when the queue was
later seen empty. What cannot be decided, because an answer is missing or the queue was not polled again, is unresolved.
Counts, and keeps the first texts of each; reads no clock and queries nothing.
"""

from collections.abc import Hashable
from dataclasses import dataclass

MAX_TEXTS = 20
Message = tuple[int, int]  # sender, number


class ConservationFindings:
    """Violations and unresolved messages: how many, and texts for the first of them."""

    def __init__(self) -> None:
        self.violations = 0
        self.unresolved = 0
        self.violation_texts: list[str] = []
        self.unresolved_texts: list[str] = []

    def add_violation(self, text: str) -> None:
        self.violations += 1
        if len(self.violation_texts) < MAX_TEXTS:
            self.violation_texts.append(text)

    def add_unresolved(self, text: str) -> None:
        self.unresolved += 1
        if len(self.unresolved_texts) < MAX_TEXTS:
            self.unresolved_texts.append(text)


@dataclass(slots=True)
class _InFlight:
    destination: Hashable
    stored_ns: int | None = None
    received: bool = False


class ReceivedSeqs:
    """Which sequence numbers of one sender were received: all below a watermark, and some above it."""

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
    """The messages of all clients in this process. `shared` destinations are also consumed by other processes."""

    def __init__(self, findings: ConservationFindings, shared: frozenset[Hashable] = frozenset()) -> None:
        self._findings = findings
        self._shared = shared
        self._in_flight: dict[Message, _InFlight] = {}
        self._received: dict[int, ReceivedSeqs] = {}
        self._empty_ns: dict[Hashable, int] = {}

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def sending(self, message: Message, destination: Hashable) -> None:
        """Call before sending: it may be received before its sender knows that it was stored."""
        self._in_flight[message] = _InFlight(destination)

    def refused(self, message: Message) -> None:
        """It was certainly not stored."""
        del self._in_flight[message]

    def stored(self, message: Message, now_ns: int) -> None:
        entry = self._in_flight[message]
        entry.stored_ns = now_ns
        if entry.received or entry.destination in self._shared:
            del self._in_flight[message]

    def received(self, message: Message, destination: Hashable, redelivered: bool) -> bool:
        """Whether it was received for the first time, as far as this process knows."""
        if destination in self._shared:
            return True  # other processes receive the rest; only the ledger sees them all
        if not self._received.setdefault(message[0], ReceivedSeqs()).take(message[1]):
            if not redelivered:
                self._findings.add_violation(f"message {message[1]} of sender {message[0]} arrived twice")
            return False
        entry = self._in_flight.get(message)
        if entry is not None:
            entry.received = True
            if entry.stored_ns is not None:
                del self._in_flight[message]
        return True

    def empty(self, destination: Hashable, asked_ns: int) -> None:
        """A request sent at that time found the destination empty."""
        self._empty_ns[destination] = max(asked_ns, self._empty_ns.get(destination, 0))

    def emptied_ns(self, destination: Hashable) -> int:
        """When a destination was last known to be empty; 0 for never."""
        return self._empty_ns.get(destination, 0)

    def close(self) -> None:
        """Judge the messages still in flight: no client will poll again."""
        for (sender, number), entry in self._in_flight.items():
            name = f"message {number} of sender {sender} to {entry.destination}"
            if entry.received:
                continue  # it was received, so it was stored, even if its sender got no answer
            if entry.stored_ns is None:
                self._findings.add_unresolved(f"{name} was never answered")
            elif self.emptied_ns(entry.destination) > entry.stored_ns:
                self._findings.add_violation(f"{name} was stored and never received")
            else:
                self._findings.add_unresolved(f"{name} was stored, but its queue was not polled again")
        self._in_flight.clear()
