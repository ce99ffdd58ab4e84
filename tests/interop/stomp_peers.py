"""Peers for tests of STOMP: stomp.py, which shares no code with us, and our own channels and connections."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

import stomp
from crescendo.load.protocols.stomp import StompReceiver, StompSender
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.events import Connected, Deliveries, Failed, Receipts
from pumping import TIMEOUT_S, pumped, ready


def payloads(count: int, size: int) -> list[bytes]:
    """Different payloads, with NULs and line ends in them."""
    noise = np.random.default_rng(7).integers(0, 256, (count, size), np.uint8)
    noise[:, 4:9] = np.frombuffer(b"\0\n\n\0:", np.uint8)
    noise[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(count, 4)
    return [row.tobytes() for row in noise]


# -- stomp.py --------------------------------------------------------------------------------------------------------


class Foreign(stomp.ConnectionListener):  # type: ignore[misc]
    """A stomp.py connection that keeps what it received."""

    def __init__(self, url: str, version: str = "1.2") -> None:
        parts = urlsplit(url)
        kinds = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
        options: dict[str, Any] = {"auto_decode": False}
        if version != "1.0":
            options["vhost"] = "/"
        self.connection = kinds[version]([(parts.hostname, parts.port)], **options)
        self.connection.set_listener("", self)
        self.received: list[bytes] = []
        self.receipts: set[str] = set()
        self.errors: list[bytes] = []
        self._arrived = threading.Condition()
        self._credentials = unquote(parts.username or ""), unquote(parts.password or "")

    def __enter__(self) -> "Foreign":
        self.connection.connect(*self._credentials, wait=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.disconnect()

    def on_message(self, frame: Any) -> None:
        with self._arrived:
            self.received.append(frame.body)
            self._arrived.notify_all()

    def on_receipt(self, frame: Any) -> None:
        with self._arrived:
            self.receipts.add(frame.headers["receipt-id"])
            self._arrived.notify_all()

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.body)

    def subscribe(self, destination: str) -> None:
        """Subscribe, and wait until the broker confirms it."""
        headers = {"receipt": "subscribed", "activemq.prefetchSize": "1000", "consumer-window-size": "-1"}
        self.connection.subscribe(destination, "0", "auto", headers=headers)
        self.await_receipts({"subscribed"})

    def send_all(self, destination: str, bodies: list[bytes]) -> None:
        for body in bodies[:-1]:
            self.connection.send(destination, body)
        self.connection.send(destination, bodies[-1], headers={"receipt": "last"})
        self.await_receipts({"last"})

    def await_receipts(self, wanted: set[str]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: wanted <= self.receipts, TIMEOUT_S), self.errors

    def await_messages(self, count: int) -> list[bytes]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.received) >= count, TIMEOUT_S), (len(self.received), count)
        return self.received


# -- our channels ----------------------------------------------------------------------------------------------------


def send_all(
    channel: StompSender, bodies: list[bytes], *, settled: bool, receiver: StompReceiver | None = None
) -> tuple[list[int], list[bytes]]:
    """Send through the channel's batch; returns the settled numbers, and what a receiver got meanwhile."""
    ready(channel)
    rows = channel._batch.bodies  # the engine writes stamps only; here whole payloads are compared
    sent = 0
    done: list[int] = []
    received: list[bytes] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while (
        sent < len(bodies)
        or (not settled and len(done) < len(bodies))
        or (receiver is not None and len(received) < len(bodies))
        or not channel.flush()
    ):
        assert time.monotonic() < deadline_s, f"{sent} sent, {len(done)} settled, {len(received)} received"
        count = min(channel.room(), len(bodies) - sent)
        if count:
            chosen = b"".join(bodies[sent : sent + count])
            rows[:count] = np.frombuffer(chosen, np.uint8).reshape(count, -1)
            channel.send(sent, count)
            sent += count
        for outcome in pumped(channel, 0 if count or receiver else 0.02):
            done += map(int, outcome.seqs)
        for arrived in pumped(receiver, 0.001) if receiver is not None else ():
            received += arrived
    return done, received


# -- our connection, without a channel -------------------------------------------------------------------------------


class Session:
    """A connection on a blocking socket: send a frame, wait for its effect."""

    def __init__(self, url: str, **options: Any) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
        credentials = {"login": unquote(parts.username or ""), "passcode": unquote(parts.password or "")}
        self.connection = Connection(host="/", **(credentials | options))
        self.bodies: list[bytes] = []
        self.ids: list[str] = []
        self.redelivered: list[bool] = []
        self.receipts: list[str] = []
        self.failure: str | None = None
        self._connected = False

    def step(self) -> None:
        while self.connection.outgoing:
            self._socket.sendall(self.connection.outgoing.popleft())
        count = self._socket.recv_into(self.connection.receive_buffer())
        assert count, "the broker closed the connection"
        self.connection.received(count)
        while (event := self.connection.next_event()) is not None:
            match event:
                case Deliveries():
                    self.bodies += [body.tobytes() for body in event.bodies]
                    self.ids += event.ids
                    self.redelivered += [event.redelivered] * len(event.bodies)
                case Receipts():
                    self.receipts += event.ids
                case Failed(reason=reason):
                    self.failure = reason
                case Connected():
                    self._connected = True

    def connect(self) -> "Session":
        while not self._connected:
            self.step()
            assert self.failure is None, self.failure
        return self

    def await_receipt(self, name: str) -> None:
        while name not in self.receipts:
            self.step()
            assert self.failure is None, self.failure

    def await_bodies(self, count: int) -> list[bytes]:
        while len(self.bodies) < count:
            self.step()
            assert self.failure is None, self.failure
        return self.bodies

    def await_failure(self) -> str:
        while self.failure is None:
            self.step()
        return self.failure

    def close(self) -> None:
        self._socket.close()


@contextmanager
def stomp_session(url: str, **options: Any) -> Iterator[Session]:
    """A connected session; it ends with a DISCONNECT that the broker has answered."""
    session = Session(url, **options).connect()
    try:
        yield session
        if session.failure is None:
            session.connection.disconnect(receipt="closed")
            session.await_receipt("closed")
    finally:
        session.close()
