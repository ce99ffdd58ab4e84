"""A Core connection on a blocking socket, for tests against real brokers."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from blocking_session import CONSUMER, PRODUCER, BlockingSession, connected
from crescendo.wire.artemis_core.connection import Connection
from crescendo.wire.artemis_core.events import (
    Closed,
    Completed,
    Connected,
    CreditRefused,
    Deliveries,
    Event,
    Granted,
    Refused,
)
from crescendo.wire.artemis_core.messages import CoreMessage
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.responses import Rejected, Responses

WINDOW_BYTES = 1 << 20


class CoreSession(BlockingSession):
    """Send a packet, wait for its effect."""

    def __init__(self, url: str, name: str, **options: Any) -> None:
        super().__init__(Connection, url, name, **options)
        self.messages: list[CoreMessage] = []
        self.granted = 0
        self.refused_credits = 0
        self._answers: dict[int, Packet] = {}
        self._processed: set[int] = set()

    def _handle(self, event: Event) -> None:
        match event:
            case Connected():
                self._connected = True
            case Deliveries():
                self._keep(event)
                self.messages += [event.message] * len(event.bodies)
            case Completed(request=number, answer=answer):
                self._answers[number] = answer
            case Responses(numbers=numbers):
                self._processed.update(numbers.tolist())
            case Granted(credits=credits):
                self.granted += credits
            case CreditRefused(credits=credits):
                self.refused_credits += credits
            case Refused(reason=reason) | Rejected(reason=reason):
                raise ConnectionRefusedError(reason)
            case Closed(reason=reason):
                raise ConnectionAbortedError(reason)

    def done(self, request: int) -> Any:
        while request not in self._answers:
            self.step()
        return self._answers[request]

    def create(self, queue: str, **options: Any) -> None:
        self.done(self.connection.create_queue(options.pop("address", queue), queue, **options))

    def send(self, address: str, body: bytes, **options: Any) -> None:
        if not self._sent:
            self.connection.add_producer(PRODUCER, address)
        self.connection.send(self._sent, body, producer=PRODUCER, address=address, **options)
        self._sent += 1
        while self._sent - 1 not in self._processed:
            self.step()

    def consume(self, queue: str, **options: Any) -> Any:
        answer = self.done(self.connection.add_consumer(CONSUMER, queue, **options))
        self.connection.grant(CONSUMER, WINDOW_BYTES)
        self.connection.start()
        return answer

    def acknowledge(self, *numbers: int, individual: bool = False) -> None:
        """Acknowledge these of the received messages."""
        ids = np.frombuffer(b"".join(self.ids[number] for number in numbers), np.uint8).reshape(-1, 8)
        self.done(self.connection.acknowledge(CONSUMER, ids, individual=individual, answered=True))


def core_session(url: str, name: str, **options: Any) -> AbstractContextManager[CoreSession]:
    return connected(CoreSession(url, name, **options))
