"""Do the STOMP channels keep their promises to the engines, whatever the broker does?

The broker is a socket on which the test writes, byte by byte, what a broker might send.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crescendo.load.protocols import stomp as driver
from crescendo.load.protocols.stomp import StompReceiver, StompSender
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.net.sockets import listen
from crescendo.record.schema import Settlement

GROUP = Group(address="queue://q", size=PayloadSize.fixed(32))
CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:1000,1000\n\n\0\n"
SUBSCRIBED = b"RECEIPT\nreceipt-id:subscribed\n\n\0\n"
TIMEOUT_S = 10.0


def message(number: int) -> bytes:
    head = f"MESSAGE\nsubscription:0\nmessage-id:{number}\nack:a{number}\ncontent-length:32\n\n"
    return head.encode() + bytes([number]) * 32 + b"\0\n"


class Harness:
    """Our channel and the other end of its connection."""

    def __init__(self, listener: socket.socket, kind: type[Any], group: Group = GROUP, **options: Any) -> None:
        port = listener.getsockname()[1]
        self.channel = kind(f"stomp://127.0.0.1:{port}", group, **options)
        self.other, _ = listener.accept()
        self.other.settimeout(TIMEOUT_S)

    def send(self, octets: bytes) -> None:
        self.other.sendall(octets)

    def read_until(self, until: bytes) -> bytes:
        received = b""
        while until not in received:
            self.channel.flush()
            received += self.other.recv(65_536)
        return received

    def pump_until(self, condition: Callable[[], bool]) -> list[Any]:
        found: list[Any] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, self.channel.closed
            found += [_kept(item) for item in self.channel.pump()]
            if isinstance(self.channel, StompReceiver):
                self.channel.settle()
            time.sleep(0.001)
        return found

    def connect(self) -> None:
        self.send(CONNECTED)
        if isinstance(self.channel, StompReceiver):
            self.read_until(b"CONNECT\n")
            self.pump_until(lambda: self.channel._subscribed)
        else:
            self.pump_until(lambda: self.channel.ready)

    def close(self) -> None:
        self.channel.close()
        self.other.close()


def _kept(item: Any) -> Any:
    return [row.tobytes() for row in item.payloads] if hasattr(item, "payloads") else tuple(item)


@pytest.fixture
def harnesses() -> Iterator[Callable[..., Harness]]:
    listener = listen()
    made: list[Harness] = []

    def make(kind: type[Any], **options: Any) -> Harness:
        made.append(Harness(listener, kind, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
    listener.close()


@pytest.mark.parametrize("order", ["receipt first", "message first", "message only"])
def test_messages_wait_in_the_socket_until_the_receiver_begins(harnesses: Callable[..., Harness], order: str) -> None:
    harness = harnesses(StompReceiver)
    harness.connect()
    parts = {"receipt first": SUBSCRIBED + message(1), "message first": message(1) + SUBSCRIBED}
    harness.send(parts.get(order, message(1)))
    assert harness.pump_until(lambda: harness.channel.ready) == []
    assert list(harness.channel.pump()) == []
    harness.channel.begin()
    # The socket wakes the engine: something must be left to read there.
    assert select.select((harness.channel,), (), (), TIMEOUT_S)[0]
    found: list[Any] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while not found and time.monotonic() < deadline_s:
        found += [_kept(item) for item in harness.channel.pump()]
    assert found == [[b"\1" * 32]]


def test_one_acknowledgement_per_read_names_the_last_message(harnesses: Callable[..., Harness]) -> None:
    harness = harnesses(StompReceiver)
    harness.connect()
    harness.send(SUBSCRIBED)
    harness.pump_until(lambda: harness.channel.ready)
    harness.read_until(b"SUBSCRIBE\n")
    harness.channel.begin()
    harness.send(message(1) + message(2) + message(3))
    time.sleep(0.05)  # so that one read finds all of them
    assert [len(_kept(item)) for item in harness.channel.pump()] == [3]
    harness.channel.settle()
    assert harness.read_until(b"\0") == b"ACK\nid:a3\n\n\0"


def test_receipts_in_any_order_settle_exactly_their_messages(harnesses: Callable[..., Harness]) -> None:
    harness = harnesses(StompSender)
    harness.connect()
    harness.channel.send(0, 10)
    numbers = (0, 1, 2, 5, 4, 9)
    harness.send(b"".join(b"RECEIPT\nreceipt-id:%016d\n\n\0\n" % number for number in numbers))
    done: list[Any] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while sum(len(seqs) for seqs, _ in done) < len(numbers) and time.monotonic() < deadline_s:
        done += [tuple(outcome) for outcome in harness.channel.pump()]
    assert [int(number) for seqs, _ in done for number in seqs] == list(numbers)
    assert {settlement for _, settlement in done} == {Settlement.ACCEPTED}


@pytest.mark.parametrize("name", ["0000000000000010", "-1", "abc", "²", "9" * 30])
@pytest.mark.parametrize("times", [1, 3])
def test_an_unrequested_receipt_closes_the_channel(
    harnesses: Callable[..., Harness], name: str, times: int
) -> None:  # fmt: skip
    harness = harnesses(StompSender)
    harness.connect()
    harness.channel.send(0, 10)
    harness.send(f"RECEIPT\nreceipt-id:{name}\n\n\0\n".encode() * times)
    harness.pump_until(lambda: harness.channel.closed is not None)
    assert "we did not request" in harness.channel.closed


def test_the_brokers_reason_wins_over_the_broken_connection(harnesses: Callable[..., Harness]) -> None:
    harness = harnesses(StompSender)
    harness.connect()
    harness.send(b"ERROR\nmessage:queue full\n\n\0")
    harness.other.close()
    for _ in range(20):
        if harness.channel.room():
            harness.channel.send(0, harness.channel.capacity)
        time.sleep(0.001)
    harness.pump_until(lambda: harness.channel.closed is not None)
    assert harness.channel.closed == "the system refused: queue full"


def test_a_broker_that_disconnects_is_noticed(harnesses: Callable[..., Harness]) -> None:
    harness = harnesses(StompReceiver)
    harness.other.close()
    harness.pump_until(lambda: harness.channel.closed is not None)
    assert "clos" in harness.channel.closed or "broke" in harness.channel.closed


def test_heart_beats_are_sent_and_demanded(harnesses: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HEARTBEAT_MS", 1000)
    harness = harnesses(StompSender)
    harness.connect()
    harness.read_until(b"\0")
    now_ns = time.monotonic_ns()
    harness.channel.keep_alive(now_ns)
    harness.channel.keep_alive(now_ns + 600_000_000)
    assert harness.other.recv(10) == b"\n"
    harness.channel.keep_alive(now_ns + 1_900_000_000)
    assert harness.channel.closed is None
    harness.channel.keep_alive(now_ns + 3_100_000_000)
    assert harness.channel.closed == "the system has been silent for 3 s"


def test_unsettled_messages_are_bounded(harnesses: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_UNSETTLED", 100)
    harness = harnesses(StompSender)
    harness.connect()
    assert harness.channel.room() == 100
    harness.channel.send(0, 100)
    assert harness.channel.room() == 0
    harness.send(b"RECEIPT\nreceipt-id:%016d\n\n\0\n" % 7)
    harness.pump_until(lambda: harness.channel.room() > 0)
    assert harness.channel.room() == 1


def test_a_destination_is_escaped_as_the_brokers_version_demands(harnesses: Callable[..., Harness]) -> None:
    for version, escaped in ((b"1.0", b"/queue/a:b"), (b"1.2", b"/queue/a\\cb")):
        for batching in (True, False):
            harness = harnesses(StompSender, group=Group(address="queue://a:b"), batching=batching)
            harness.send(b"CONNECTED\nversion:" + version + b"\n\n\0")
            harness.pump_until(lambda harness=harness: harness.channel.ready)
            harness.channel.send(0, 1)
            received = harness.read_until(b"SEND")
            assert b"destination:" + escaped + b"\n" in received
