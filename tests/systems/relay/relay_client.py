"""A client that does only what a test asks: it grants no credit, settles nothing and does not close by itself."""

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from crescendo.model.errors import PeerError
from crescendo.net.sockets import connect, fill, flush
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Attached, Begun, Deliveries, Detached, Event, Refused, Settled
from crescendo.wire.amqp10.handshake import Credentials

TIMEOUT_S = 20.0


class RelayClient:
    """One connection to the relay."""

    def __init__(self, port: int, credentials: Credentials | None = None) -> None:
        self.socket = connect("127.0.0.1", port)
        self.connection = Connection(container_id="test", credentials=credentials)
        self.events: list[Event] = []
        self.messages: list[tuple[int, int, bytes]] = []  # handle, delivery id, body
        self.settled: set[int] = set()
        try:
            self.until(lambda: Begun() in self.events)
        except BaseException:
            self.die()
            raise

    def sender(self, address: str, *, topic: bool = False) -> int:
        return self._attached(self.connection.attach_sender(f"s{id(self)}", address, settled=False, topic=topic))

    def receiver(self, address: str, *, topic: bool = False, settled: bool = False, credit: int = 0) -> int:
        handle = self.connection.attach_receiver(f"r{id(self)}", address, settled=settled, topic=topic)
        self._attached(handle)
        if credit:
            self.connection.grant(handle, credit)
            self.pump(0)
        return handle

    def _attached(self, handle: int) -> int:
        self.until(lambda: any(isinstance(event, Attached) and event.handle == handle for event in self.events))
        return handle

    def send(self, handle: int, *bodies: bytes) -> None:
        for body in bodies:
            self._send_one(handle, body)
        self.pump(0)

    def _send_one(self, handle: int, body: bytes) -> None:
        self.until(lambda: self.connection.sendable(handle, len(body)) > 0)
        self.connection.transfer_one(handle, body, settled=False)

    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.messages]

    def pump(self, wait_s: float = 0.01) -> None:
        """Flush pending output, and read what has arrived."""
        flush(self.socket, self.connection.outgoing)
        if not select.select((self.socket,), (), (), wait_s)[0]:
            return
        count = fill(self.socket, self.connection.receive_buffer())
        if count == 0:
            raise PeerError("the relay closed the connection")
        self.connection.received(count or 0)
        while (event := self.connection.next_event()) is not None:
            if isinstance(event, Deliveries):
                rows = zip(event.ids.tolist(), event.bodies, strict=True)
                self.messages += [(event.handle, number, body.tobytes()) for number, body in rows]
            elif isinstance(event, Refused):
                raise PeerError(event.reason)
            elif isinstance(event, Settled):
                for first, last in event.ranges:
                    self.settled.update(range(first, last + 1))
            else:
                self.events.append(event)
        flush(self.socket, self.connection.outgoing)

    def until(self, condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "the condition was not met in time"
            self.pump()

    def quiet(self, seconds: float = 0.15) -> None:
        """Pump for a while without waiting for anything."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self.pump()

    def detach_reason(self) -> str | None:
        return next((event.error for event in self.events if isinstance(event, Detached)), None)

    def die(self) -> None:
        """Disconnect without a close handshake, like a killed process."""
        if self.socket.fileno() >= 0:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not finish
            self.socket.close()
