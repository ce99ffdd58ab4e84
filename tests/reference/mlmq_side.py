"""How does the reference server answer the requests of MLMQ's clients?"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from crescendo.model.errors import PeerError
from crescendo.wire.mlmq.codec import Codec, Frame, Unreadable
from crescendo.wire.mlmq.operations import (
    TYPES,
    Acknowledge,
    CreateQueue,
    Dequeue,
    Message,
    Messages,
    QueueFound,
    Register,
    Registered,
    Send,
    Sent,
    Settled,
)
from server_side import Arrived, ServerSide

_READ_BYTES = 64 * 1024


class MlmqCodec:
    """MLMQ's codec with the interface of the others."""

    closed = False  # there is no close frame

    def __init__(self) -> None:
        self.outgoing: deque[memoryview] = deque()
        self._codec = Codec(TYPES)
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._codec.receive(self._buffer[:count])

    def next_event(self) -> Frame | None:
        frame = self._codec.next_frame()
        if isinstance(frame, Unreadable):
            raise PeerError(frame.text)
        return frame

    def answer(self, request: int, value: object) -> None:
        self.outgoing.append(memoryview(self._codec.encode(request, value)))


class MlmqSide(ServerSide):
    """A dequeue waits until there is a message for it; the client asks for the next one when it has read it."""

    def __init__(self) -> None:
        super().__init__()
        self._codec = MlmqCodec()
        self._queues: list[str] = []
        self._waiting: deque[int] = deque()
        self._numbered = 0

    def _take(self, event: Any) -> Iterator[Arrived]:
        match event.value:
            case Register():
                self._codec.answer(event.request, Registered(1, 1, 1))
            case CreateQueue(name=name):
                self._queues.append(name)
                self._codec.answer(event.request, QueueFound(len(self._queues), name, None, 1))
            case Send(content=content, queues=queues):
                yield from ((self._queues[queue - 1], content) for queue in queues)
                self._numbered += 1
                self._codec.answer(event.request, Sent((self._numbered,), None))
            case Dequeue(query=query):
                self.consumes = self._queues[(query.queue or 1) - 1]
                self._waiting.append(event.request)
            case Acknowledge():
                self._codec.answer(event.request, Settled())
            case other:
                raise PeerError(f"{type(other).__name__} is not answered here")

    def room(self) -> int:
        return len(self._waiting)

    def deliver(self, payload: bytes) -> None:
        self._numbered += 1
        message = Message(self._numbered, 1, 1, None, 5, None, 0, 1, payload)
        self._codec.answer(self._waiting.popleft(), Messages((message,)))
