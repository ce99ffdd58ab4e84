"""What is the server side of one connection, whatever its protocol?

Which messages arrived for which destination, which destination this client consumes, and how one delivery is encoded.
Accepts everything, reads no clock, delays nothing and uses no socket.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

Arrived = tuple[str, bytes]  # destination, payload


class ServerSide(ABC):
    """The server's side of one connection."""

    _codec: Any

    def __init__(self) -> None:
        self.consumes: str | None = None  # the destination that this client receives from

    @property
    def outgoing(self) -> deque[memoryview]:
        queued: deque[memoryview] = self._codec.outgoing
        return queued

    @property
    def closed(self) -> bool:
        return bool(self._codec.closed)

    def receive_buffer(self) -> memoryview:
        view: memoryview = self._codec.receive_buffer()
        return view

    def received(self, count: int) -> list[Arrived]:
        """Decode what was read and queue the answers. Returns the messages, with payloads of their own."""
        self._codec.received(count)
        arrived: list[Arrived] = []
        while (event := self._next()) is not None:
            arrived += self._take(event)
        return arrived

    def room(self) -> int:
        """How many deliveries this client accepts now."""
        return 1

    def _next(self) -> Any:
        return self._codec.next_event()

    @abstractmethod
    def _take(self, event: Any) -> Iterator[Arrived]:
        """Answer an event; yield its messages."""

    @abstractmethod
    def deliver(self, payload: bytes) -> None:
        """Queue one delivery of what this client consumes."""
