"""How does our AMQP 0-9-1 channel behave with a system that does not act like a healthy broker?

The system is our own server side in a thread, with a reaction to messages that each test chooses.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from amqp091_peers import bodies, group, refused
from crescendo.load.protocols import amqp091
from crescendo.load.protocols.amqp091 import Amqp091Sender
from crescendo.record.schema import Settlement
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.connection_methods import ConnectionBlocked, ConnectionUnblocked
from crescendo.wire.amqp091.events import Deliveries, MethodReceived
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from pumping import TIMEOUT_S, pumped, ready, send_all

Reaction = Callable[[Connection, Deliveries], None]


class Sink(threading.Thread):
    """Serves one client until it disconnects; counts messages and calls a reaction on them."""

    def __init__(self, react: Reaction) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._react = react
        self.url = f"amqp091://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connection = Connection(server=True)
        self.messages = 0
        self.client: socket.socket | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        self.client, _ = self._listener.accept()
        self.client.settimeout(0.02)
        with self._listener, self.client:
            while not self.stop.is_set() and not self.connection.closed:
                try:
                    count = self.client.recv_into(self.connection.receive_buffer())
                except TimeoutError:
                    count = None
                if count == 0:
                    return
                self.connection.received(count or 0)
                while (event := self.connection.next_event()) is not None:
                    self._answer(event)
                self.client.settimeout(TIMEOUT_S)
                while self.connection.outgoing:
                    self.client.sendall(self.connection.outgoing.popleft())
                self.client.settimeout(0.02)

    def _answer(self, event: object) -> None:
        match event:
            case MethodReceived(channel=channel, method=QueueDeclare(queue=queue)):
                self.connection.send(channel, QueueDeclareOk(queue))
            case MethodReceived(channel=channel, method=ConfirmSelect()):
                self.connection.send(channel, ConfirmSelectOk())
            case Deliveries():
                self.messages += len(event.tags)
                self._react(self.connection, event)


@contextmanager
def sink(react: Reaction = lambda _connection, _event: None) -> Iterator[Sink]:
    server = Sink(react)
    server.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.join(TIMEOUT_S)
        assert not server.is_alive()


def pump_until(sender: Amqp091Sender, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s
        pumped(sender)


def confirm(connection: Connection, event: Deliveries) -> None:
    connection.send(event.channel, BasicAck(int(event.tags[-1]), multiple=True))


@pytest.mark.parametrize("at_most_once", [False, True], ids=["at-least-once", "at-most-once"])
def test_a_sink_takes_everything_in_batches(at_most_once: bool) -> None:
    with sink(*() if at_most_once else (confirm,)) as server:
        load = group("q", at_most_once=at_most_once)
        with closing(Amqp091Sender(server.url, load)) as sender:
            send_all(sender, bodies(50_000, 256), settled=at_most_once)
            assert sender.batched == 50_000
            pump_until(sender, lambda: server.messages == 50_000)


def test_an_unconfirmed_sender_stops_at_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp091, "MAX_UNCONFIRMED", 1000)
    with sink() as server, closing(Amqp091Sender(server.url, group("q"))) as sender:
        ready(sender)
        sent = 0
        while room := sender.room():
            sender.send(sent, min(room, 300))
            sent += min(room, 300)
            while not sender.flush():
                pumped(sender)
        pump_until(sender, lambda: server.messages == 1000)
        assert sender.room() == 0


def test_a_blocked_sender_waits_until_it_is_unblocked() -> None:
    def block(connection: Connection, event: Deliveries) -> None:
        confirm(connection, event)
        connection.send(0, ConnectionUnblocked() if event.tags[-1] > 10 else ConnectionBlocked("low on memory"))

    with sink(block) as server, closing(Amqp091Sender(server.url, group("q"))) as sender:
        ready(sender).send(0, 10)
        pump_until(sender, lambda: sender.room() == 0)
        pumped(sender, 0.1)
        assert sender.room() == 0
        sender.send(10, 10)
        pump_until(sender, lambda: sender.room() > 0)


def test_confirms_and_the_close_reason_are_read_after_the_connection_broke() -> None:
    def confirm_and_go(connection: Connection, event: Deliveries) -> None:
        confirm(connection, event)
        connection.close(320, "CONNECTION_FORCED - shutdown")

    with sink(confirm_and_go) as server, closing(Amqp091Sender(server.url, group("q"))) as sender:
        ready(sender).send(0, 10)
        deadline_s = time.monotonic() + TIMEOUT_S
        while server.messages < 10 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        time.sleep(0.1)
        assert server.client is not None
        # A reset instead of a close: our next write fails, and what was sent before is still to be read.
        server.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.stop.set()
        server.join(TIMEOUT_S)
        for first in (10, 20, 30):
            sender.send(first, 10)
        assert sender.room() == 0
        assert sender.pump() == [(range(10), Settlement.ACCEPTED)]
        assert sender.closed is not None
        assert "CONNECTION_FORCED - shutdown (320)" in sender.closed


@pytest.mark.parametrize("body", [b"too short", bytes(64), b"\xc5\x01" + bytes(6) + b"\xff" * 24])
def test_a_return_of_a_message_we_never_sent_closes_the_channel(body: bytes) -> None:
    def give_back(connection: Connection, event: Deliveries) -> None:
        connection.send_content(event.channel, BasicReturn(312, "NO_ROUTE", "", "q"), body)

    with sink(give_back) as server, closing(Amqp091Sender(server.url, group("q"))) as sender:
        ready(sender).send(0, 1)
        assert "returned a message that we did not send" in refused(sender)
