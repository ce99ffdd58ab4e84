"""How does the load engine speak the toy protocol?"""

from collections import deque
from collections.abc import Iterator

import numpy as np

from crescendo.load.protocols.base_channel import UNLIMITED, BaseChannel, BaseSendChannel
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.model.workload import Group
from crescendo.record.schema import Settlement
from crescendo_toy.server import COUNT, HEAD, Kind, frame

MAX_BATCH = 256
MAX_UNSETTLED = 4096
Frame = tuple[bytes, bytes]  # kind and body


class Codec:
    """Bytes to frames; does no I/O."""

    def __init__(self) -> None:
        self.outgoing: deque[memoryview] = deque()
        self._buffer = memoryview(bytearray(64 * 1024))
        self._unread = bytearray()

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._unread += self._buffer[:count]

    def next_event(self) -> Frame | None:
        if len(self._unread) < HEAD.size:
            return None
        kind, length = HEAD.unpack_from(self._unread)
        end = HEAD.size + length
        if len(self._unread) < end:
            return None
        body = bytes(self._unread[HEAD.size : end])
        del self._unread[:end]
        return kind, body

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.outgoing.append(memoryview(frame(kind, body)))


class Batch:
    """A reusable buffer of equal frames, whose bodies the engine fills in."""

    def __init__(self, size: int) -> None:
        self.capacity = MAX_BATCH
        self._length = HEAD.size + size
        self._octets = np.tile(np.frombuffer(frame(Kind.MESSAGE, bytes(size)), np.uint8), self.capacity)
        self.bodies = self._octets.reshape(self.capacity, self._length)[:, HEAD.size :]

    def frames(self, count: int) -> memoryview:
        return self._octets.data[: count * self._length]


class _Channel(BaseChannel):
    """One connection, in either direction."""

    _connection: Codec

    def _open(self, kind: bytes) -> None:
        self._dial(Codec())
        self._connection.send(kind, self._group.destination.encode())

    def _handle(self, event: Frame) -> bool:
        if event[0] == Kind.OPENED:
            self.ready = True
        return event[0] == Kind.OPENED

    def _send_close(self) -> None:
        self._connection.send(Kind.CLOSE)

    def _idle_timeout_ns(self) -> int:
        return 0  # the protocol has no heartbeats

    def _heartbeat_interval_ns(self) -> int:
        return 0


class ToySender(BaseSendChannel, _Channel):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._accepted = 0
        self.resize(self._size)
        self._open(Kind.SENDER)

    def room(self) -> int:
        unsettled = self._sequence_map.count - self._accepted
        return max(0, min(self.capacity, MAX_UNSETTLED - unsettled)) if self._is_writable else 0

    def pump(self) -> list[SettledMessages]:
        settled: list[SettledMessages] = []
        for _, body in self._events():
            (accepted,) = COUNT.unpack(body)
            settled += self._settled_ranges([(self._accepted, accepted - 1)], Settlement.ACCEPTED)
            self._accepted = accepted
        self.flush()
        return settled

    def _new_batch(self, size: int) -> Batch:
        return Batch(size)

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.outgoing.append(self._batch.frames(count))

    def _prepare(self, count: int, position: int) -> memoryview:
        return self._batch.frames(count)

    def _send_one(self, body: bytes, position: int) -> None:
        self._connection.send(Kind.MESSAGE, body)


class ToyReceiver(_Channel):
    """A receiving channel."""

    window = UNLIMITED

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._open(Kind.RECEIVER)

    def begin(self) -> None:
        self._connection.send(Kind.START)
        self.flush()

    def pump(self) -> Iterator[ReceivedMessages]:
        for _, body in self._events():
            yield ReceivedMessages(np.frombuffer(body, np.uint8).reshape(1, -1), redelivered=False, batched=False)
        self.flush()

    def settle(self) -> None:
        """Nothing to settle: the server forgets a message when it has delivered it."""
