"""How does blocking code send requests to MLMQ, and which brokers does a URL name?

`mlmq://host:port`, or `mlmq://host:port?brokers=host:port,host:port` if several brokers serve one database. One request
at a time, a deadline for every wait. Only enough to probe a system: unlike MLMQ's own client, it never retries.
"""

import select
import time
import uuid
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import MLMQ
from crescendo.net.transport import connect
from crescendo.wire.mlmq.codec import Codec, Unreadable
from crescendo.wire.mlmq.operations import (
    TYPES,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Deregister,
    Done,
    Messages,
    Query,
    QueueFound,
    Refused,
    Register,
    Registered,
    Request,
    Send,
    Sent,
)

(BROKERS,) = MLMQ.url_options
"""The URL option that names the other brokers."""

_BUFFER_BYTES = 64 * 1024
A = TypeVar("A")


def brokers_of(url: str) -> tuple[str, ...]:
    """Every broker that a URL names, as host:port, its own host first."""
    parts = urlsplit(url)
    further = [text for value in parse_qs(parts.query).get(BROKERS, ()) for text in value.split(",")]
    for text in further:
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(f"{BROKERS}: {text!r} is not a broker address; write host:port,host:port")
    if parts.scheme != MLMQ.scheme or not parts.hostname:
        raise ConfigError(f"a URL that begins with {parts.scheme!r} where mlmq://host:port is needed")
    if parts.username is not None:
        raise ConfigError("the url of mlmq: MLMQ has no users; leave user and password out")
    return (f"{parts.hostname}:{parts.port or MLMQ.port}", *further)


def url_of(brokers: tuple[str, ...]) -> str:
    """The URL that names these brokers."""
    further = f"?{BROKERS}={','.join(brokers[1:])}" if len(brokers) > 1 else ""
    return f"{MLMQ.scheme}://{brokers[0]}{further}"


def pass_a_message(url: str, timeout_s: float) -> None:
    """Probe every broker: send a message through a temporary queue. PeerError says what failed."""
    for broker in brokers_of(url):
        connection = _BrokerConnection(broker, time.monotonic() + timeout_s)
        try:
            _pass_through(connection, f"crescendo proof {uuid.uuid4().hex[:16]}", round(timeout_s * 1000))
        finally:
            connection.close()


def _pass_through(connection: "_BrokerConnection", name: str, wait_ms: int) -> None:
    client = connection.request(Register(name), Registered).client
    queue = connection.request(CreateQueue(client, f"{name} queue"), QueueFound).queue
    connection.request(Send(client, name.encode(), (queue,)), Sent)
    found = connection.request(Dequeue(client, Query(queue), wait_ms=wait_ms), Messages).messages
    if [message.content for message in found] != [name.encode()]:
        raise PeerError(f"the probe message did not return from {connection.broker}")
    connection.request(DeleteQueue(client, queue), Done)
    connection.request(Deregister(client), Done)


class _BrokerConnection:
    """One connection to one broker."""

    def __init__(self, broker: str, deadline_s: float) -> None:
        host, _, port = broker.rpartition(":")
        self.broker = broker
        self._deadline_s = deadline_s
        self._codec = Codec(TYPES)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._number = 0
        self._transport = connect(host, int(port), timeout_s=max(deadline_s - time.monotonic(), 0.001))

    def request(self, request: Request, expected: type[A]) -> A:
        self._number += 1
        self._write(memoryview(self._codec.encode(self._number, request)))
        answer = self._answer()
        if isinstance(answer, Refused):
            raise PeerError(f"{self.broker}: {type(request).__name__}: {answer.reason.name.lower()}: {answer.text}")
        if not isinstance(answer, expected):
            raise PeerError(f"{self.broker} answered {type(request).__name__} with {type(answer).__name__}")
        return answer

    def close(self) -> None:
        self._transport.close()

    def _write(self, frame: memoryview) -> None:
        while frame:
            frame = frame[self._transport.send(frame) :]
            if frame:
                self._wait(select.POLLOUT)

    def _answer(self) -> Any:
        while (frame := self._codec.next_frame()) is None:
            count = self._transport.recv_into(self._buffer)
            if count == 0:
                raise PeerError(f"{self.broker} closed the connection")
            if count is None:
                self._wait(select.POLLIN)
            else:
                self._codec.receive(self._buffer[:count])
        if isinstance(frame, Unreadable):
            raise PeerError(f"{self.broker} sent an unreadable answer: {frame.text}")
        return frame.value  # one request at a time: a frame is its answer, or concerns the connection

    def _wait(self, mask: int) -> None:
        poll = select.poll()
        poll.register(self._transport.fileno(), mask)
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise PeerError(f"{self.broker} did not answer in time")
