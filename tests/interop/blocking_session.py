"""A sans-IO connection of a JMS protocol on a blocking socket, for tests against real brokers."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pumping import TIMEOUT_S

CONSUMER = PRODUCER = 1


class BlockingSession(ABC):
    """Send a command, wait for its effect."""

    def __init__(self, codec: Any, url: str, name: str, **options: Any) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
        credentials = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
        self.connection = codec(name, **(credentials | options))
        self.bodies: list[bytes] = []
        self.ids: list[bytes] = []
        self.redelivered: list[bool] = []
        self._sent = 0
        self._connected = False

    def step(self) -> None:
        self.flush()
        count = self._socket.recv_into(self.connection.receive_buffer())
        assert count, "the broker closed the connection"
        self.connection.received(count)
        while (event := self.connection.next_event()) is not None:
            self._handle(event)

    def flush(self) -> None:
        while self.connection.outgoing:
            self._socket.sendall(self.connection.outgoing.popleft())

    def connect(self) -> Any:
        while not self._connected:
            self.step()
        return self

    def await_bodies(self, count: int) -> list[bytes]:
        while len(self.bodies) < count:
            self.step()
        return self.bodies

    def close(self) -> None:
        self._socket.close()

    def _keep(self, event: Any) -> None:
        """Keep what arrived together."""
        self.bodies += [body.tobytes() for body in event.bodies]
        self.ids += [name.tobytes() for name in event.ids]
        self.redelivered += [event.redelivered] * len(event.bodies)

    @abstractmethod
    def _handle(self, event: Any) -> None: ...

    @abstractmethod
    def done(self, request: int) -> Any:
        """Wait for the answer to a request."""


Session = TypeVar("Session", bound=BlockingSession)


@contextmanager
def connected(session: Session) -> Iterator[Session]:
    """A connected session; it ends when the broker has answered that."""
    session.connect()
    try:
        yield session
        session.done(session.connection.disconnect())
    finally:
        session.close()
