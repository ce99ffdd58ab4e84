"""When do bytes leave one direction of a TCP link?

Pure: chunks enter at a time and leave after the time that the rate of the link needs for them, plus its delay, in the
order in which they entered. While the lane is cut nothing leaves, and nothing is lost. Reads no clock and no socket.
"""

from collections import deque
from typing import Generic, TypeVar

from msgspec import Struct

_SECOND_NS = 10**9
_QUEUE_NS = 400_000_000  # as the queue of the token bucket of other links
_LEAST_QUEUE_BYTES = 1 << 16
_UNLIMITED_QUEUE_BYTES = 1 << 24


class LaneShape(Struct, frozen=True):
    """What one direction does: a rate of 0 is not limited; None lets nothing pass."""

    delay_ns: int = 0
    rate_bps: int | None = 0

    @property
    def queue_bytes(self) -> int:
        """How much of one connection may be on its way before it has to wait."""
        if not self.rate_bps:
            return _UNLIMITED_QUEUE_BYTES
        return max(self.rate_bps * (self.delay_ns + _QUEUE_NS) // (8 * _SECOND_NS), _LEAST_QUEUE_BYTES)


Chunk = TypeVar("Chunk")


class ByteLane(Generic[Chunk]):
    """Chunks on their way through one direction, of all connections of the link."""

    def __init__(self) -> None:
        self.shape = LaneShape()
        self._queued: deque[tuple[int, int, Chunk]] = deque()  # wait for the rate: entered, bytes, chunk
        self._travelling: deque[tuple[int, Chunk]] = deque()  # wait for the delay: due, chunk
        self._free_ns = 0

    def change(self, shape: LaneShape, now_ns: int) -> None:
        """What waits for the rate is sent at the new one; what travels keeps its delay."""
        self._send_until(now_ns)
        self._free_ns = max(self._free_ns, now_ns) if self.shape.rate_bps is None else self._free_ns
        self.shape = shape

    def add(self, chunk: Chunk, size_bytes: int, now_ns: int) -> None:
        self._queued.append((now_ns, size_bytes, chunk))

    def due(self, now_ns: int) -> list[Chunk]:
        """The chunks that leave by now."""
        self._send_until(now_ns)
        leaving = []
        while self.shape.rate_bps is not None and self._travelling and self._travelling[0][0] <= now_ns:
            leaving.append(self._travelling.popleft()[1])
        return leaving

    @property
    def next_due_ns(self) -> int | None:
        """When something may happen next; None: not by itself."""
        if self.shape.rate_bps is None:
            return None
        if self._travelling:
            return self._travelling[0][0]
        return self._sent_ns() + self.shape.delay_ns if self._queued else None

    def _sent_ns(self) -> int:
        entered_ns, size_bytes, _ = self._queued[0]
        rate_bps = self.shape.rate_bps
        return max(entered_ns, self._free_ns) + (size_bytes * 8 * _SECOND_NS // rate_bps if rate_bps else 0)

    def _send_until(self, now_ns: int) -> None:
        while self.shape.rate_bps is not None and self._queued and (sent_ns := self._sent_ns()) <= now_ns:
            chunk = self._queued.popleft()[2]
            self._free_ns = sent_ns
            due_ns = sent_ns + self.shape.delay_ns
            if self._travelling:
                due_ns = max(due_ns, self._travelling[-1][0])  # a shorter delay lets nothing overtake
            self._travelling.append((due_ns, chunk))
