"""What do senders share whose broker responds to each message by itself?

OpenWire and Core have no credit for messages: at-least-once senders ask for a response to every message, and a window
bounds how many are unanswered. What a message looks like, and everything else that the broker may say, is left to the
protocol.
"""

import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from crescendo.load.protocols.base_channel import BaseSendChannel
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.model.arrays import Int64s
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group
from crescendo.record.schema import Settlement
from crescendo.wire.response_window import ResponseWindow
from crescendo.wire.responses import Rejected, Responses


class AnsweredSendChannel(BaseSendChannel):
    """A sending channel. Its codec offers `send_batch` and `send`."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._window = ResponseWindow()
        self._ttl_ns = group.target.options.ttl

    def room(self) -> int:
        if not self._is_writable:
            return 0
        return min(self.capacity, self._window.room) if self._waits_for_outcomes else self.capacity

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            match event:
                case Responses(numbers=numbers):
                    outcomes += self._outcome(numbers, Settlement.ACCEPTED)
                case Rejected(number=number, reason=reason):
                    outcomes += self._outcome(np.array([number], np.int64), Settlement.REJECTED)
                    self._fail(f"the system refused a message: {reason}")
                case _:
                    self._take(event)
        return outcomes

    def _outcome(self, numbers: Int64s, settlement: Settlement) -> Iterator[SettledMessages]:
        """Of those messages with these numbers that had none yet."""
        try:
            positions = self._window.answered(numbers)
        except PeerError as err:
            self._fail(str(err))
            return
        if len(positions):
            yield self._settled_positions(positions, settlement)

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.send_batch(self._batch, position, count, expiration_ms=self._expiration_ms())
        self._on_sent(count)

    def _prepare(self, count: int, position: int) -> memoryview | None:
        if self._ttl_ns is not None:
            return None  # the time of expiry depends on when they are sent
        frames: memoryview = self._batch.frames(position, count)
        return frames

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        self._on_sent(len(sent_ns))

    def _send_one(self, body: bytes, position: int) -> None:
        self._connection.send(position, body, expiration_ms=self._expiration_ms(), **self._message_fields())
        self._on_sent(1)

    def _on_sent(self, count: int) -> None:
        """These messages are written, or about to be."""
        if self._waits_for_outcomes:
            self._window.send(count)

    def _expiration_ms(self) -> int:
        """When a message that is sent now expires, on the broker's clock; 0 is never."""
        return 0 if self._ttl_ns is None else (time.time_ns() + self._ttl_ns) // 1_000_000

    @abstractmethod
    def _message_fields(self) -> dict[str, Any]:
        """What all messages of this group have in common."""

    @abstractmethod
    def _take(self, event: Any) -> None:
        """An event that only senders of this protocol know."""
