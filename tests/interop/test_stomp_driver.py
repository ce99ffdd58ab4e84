"""Do the STOMP channels keep their promises to the engines, whatever the other side does?

The other side is a socket on which the test says, byte by byte, what a broker might.
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
PATIENCE_S = 10.0


def message(number: int) -> bytes:
    head = f"MESSAGE\nsubscription:0\nmessage-id:{number}\nack:a{number}\ncontent-length:32\n\n"
    return head.encode() + bytes([number]) * 32 + b"\0\n"


class Stage:
    """A channel of ours and the other end of its connection."""

    def __init__(self, listener: socket.socket, kind: type[Any], group: Group = GROUP, **options: Any) -> None:
        port = listener.getsockname()[1]
        self.channel = kind(f"stomp://127.0.0.1:{port}", group, **options)
        self.other, _ = listener.accept()
        self.other.settimeout(PATIENCE_S)

    def say(self, octets: bytes) -> None:
        self.other.sendall(octets)

    def hear(self, until: bytes) -> bytes:
        heard = b""
        while until not in heard:
            self.channel.flush()
            heard += self.other.recv(65_536)
        return heard

    def pump_until(self, condition: Callable[[], bool]) -> list[Any]:
        found: list[Any] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, self.channel.closed
            found += [_kept(item) for item in self.channel.pump()]
            if isinstance(self.channel, StompReceiver):
                self.channel.settle()
            time.sleep(0.001)
        return found

    def connect(self) -> None:
        self.say(CONNECTED)
        if isinstance(self.channel, StompReceiver):
            self.hear(b"CONNECT\n")
            self.pump_until(lambda: self.channel._subscribed)
        else:
            self.pump_until(lambda: self.channel.ready)

    def end(self) -> None:
        self.channel.close()
        self.other.close()


def _kept(item: Any) -> Any:
    return [row.tobytes() for row in item.payloads] if hasattr(item, "payloads") else tuple(item)


@pytest.fixture
def stages() -> Iterator[Callable[..., Stage]]:
    listener = listen()
    made: list[Stage] = []

    def make(kind: type[Any], **options: Any) -> Stage:
        made.append(Stage(listener, kind, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.end()
    listener.close()


@pytest.mark.parametrize("order", ["receipt first", "message first", "message only"])
def test_messages_wait_in_the_socket_until_the_receiver_begins(stages: Callable[..., Stage], order: str) -> None:
    stage = stages(StompReceiver)
    stage.connect()
    parts = {"receipt first": SUBSCRIBED + message(1), "message first": message(1) + SUBSCRIBED}
    stage.say(parts.get(order, message(1)))
    assert stage.pump_until(lambda: stage.channel.ready) == []
    assert list(stage.channel.pump()) == []
    stage.channel.begin()
    # What wakes the engine is the socket: something must be left to read there.
    assert select.select((stage.channel,), (), (), PATIENCE_S)[0]
    found: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < deadline_s:
        found += [_kept(item) for item in stage.channel.pump()]
    assert found == [[b"\1" * 32]]


def test_one_acknowledgement_a_read_names_the_last_message(stages: Callable[..., Stage]) -> None:
    stage = stages(StompReceiver)
    stage.connect()
    stage.say(SUBSCRIBED)
    stage.pump_until(lambda: stage.channel.ready)
    stage.hear(b"SUBSCRIBE\n")
    stage.channel.begin()
    stage.say(message(1) + message(2) + message(3))
    time.sleep(0.05)  # so that one read finds all of them
    assert [len(_kept(item)) for item in stage.channel.pump()] == [3]
    stage.channel.settle()
    assert stage.hear(b"\0") == b"ACK\nid:a3\n\n\0"


def test_receipts_in_any_order_settle_exactly_their_messages(stages: Callable[..., Stage]) -> None:
    stage = stages(StompSender)
    stage.connect()
    stage.channel.send(0, 10)
    numbers = (0, 1, 2, 5, 4, 9)
    stage.say(b"".join(b"RECEIPT\nreceipt-id:%016d\n\n\0\n" % number for number in numbers))
    done: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(len(seqs) for seqs, _ in done) < len(numbers) and time.monotonic() < deadline_s:
        done += [tuple(outcome) for outcome in stage.channel.pump()]
    assert [int(number) for seqs, _ in done for number in seqs] == list(numbers)
    assert {settlement for _, settlement in done} == {Settlement.ACCEPTED}


@pytest.mark.parametrize("name", ["0000000000000010", "-1", "abc", "²", "9" * 30])
@pytest.mark.parametrize("times", [1, 3])
def test_a_receipt_that_nobody_asked_for_ends_the_channel(
    stages: Callable[..., Stage], name: str, times: int
) -> None:  # fmt: skip
    stage = stages(StompSender)
    stage.connect()
    stage.channel.send(0, 10)
    stage.say(f"RECEIPT\nreceipt-id:{name}\n\n\0\n".encode() * times)
    stage.pump_until(lambda: stage.channel.closed is not None)
    assert "nobody asked for" in stage.channel.closed


def test_the_brokers_words_win_over_the_broken_connection(stages: Callable[..., Stage]) -> None:
    stage = stages(StompSender)
    stage.connect()
    stage.say(b"ERROR\nmessage:queue full\n\n\0")
    stage.other.close()
    for _ in range(20):
        if stage.channel.room():
            stage.channel.send(0, stage.channel.capacity)
        time.sleep(0.001)
    stage.pump_until(lambda: stage.channel.closed is not None)
    assert stage.channel.closed == "the system refused: queue full"


def test_a_broker_that_hangs_up_is_noticed(stages: Callable[..., Stage]) -> None:
    stage = stages(StompReceiver)
    stage.other.close()
    stage.pump_until(lambda: stage.channel.closed is not None)
    assert "clos" in stage.channel.closed or "broke" in stage.channel.closed


def test_heart_beats_are_sent_and_demanded(stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "HEARTBEAT_MS", 1000)
    stage = stages(StompSender)
    stage.connect()
    stage.hear(b"\0")
    now_ns = time.monotonic_ns()
    stage.channel.keep_alive(now_ns)
    stage.channel.keep_alive(now_ns + 600_000_000)
    assert stage.other.recv(10) == b"\n"
    stage.channel.keep_alive(now_ns + 1_900_000_000)
    assert stage.channel.closed is None
    stage.channel.keep_alive(now_ns + 3_100_000_000)
    assert stage.channel.closed == "the system has been silent for 3 s"


def test_what_nobody_has_settled_yet_is_bounded(stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "UNSETTLED", 100)
    stage = stages(StompSender)
    stage.connect()
    assert stage.channel.room() == 100
    stage.channel.send(0, 100)
    assert stage.channel.room() == 0
    stage.say(b"RECEIPT\nreceipt-id:%016d\n\n\0\n" % 7)
    stage.pump_until(lambda: stage.channel.room() > 0)
    assert stage.channel.room() == 1


def test_a_destination_is_escaped_as_the_brokers_version_demands(stages: Callable[..., Stage]) -> None:
    for version, spelt in ((b"1.0", b"/queue/a:b"), (b"1.2", b"/queue/a\\cb")):
        for batching in (True, False):
            stage = stages(StompSender, group=Group(address="queue://a:b"), batching=batching)
            stage.say(b"CONNECTED\nversion:" + version + b"\n\n\0")
            stage.pump_until(lambda stage=stage: stage.channel.ready)
            stage.channel.send(0, 1)
            heard = stage.hear(b"SEND")
            assert b"destination:" + spelt + b"\n" in heard
