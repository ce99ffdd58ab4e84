"""Is a message that was prepared ahead of time the same as one that is sent fresh?"""

import contextlib
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.assignment import Quota
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.stamped_batch import MAX_PREPARED, MAX_SPAN_NS, MIN_PREPARED, QUANTUM_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.load.protocols.registry import driver_of
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import configure_socket, fill, flush, listen
from crescendo.record.schema import SENT
from crescendo.wire.stamp import Stamps
from load_fakes import FakeLog, FakeSendChannel

MS = 1_000_000
T0_NS = 7_000 * MS
TAG = 0xC0FFEE
SIZE = 64


class ImmediateChannel(FakeSendChannel):
    """Limits how many messages may be sent, but accepts those at once."""

    def take(self, stamps: Stamps) -> bool:
        super().take(stamps)
        return True


class Harness:
    """One connection, its batch, and the recorded rows."""

    def __init__(self, *, rate: float = 1000, total: int = 300, number: int = 0) -> None:
        self._limit = UNLIMITED
        self.channel = ImmediateChannel(capacity=200, allow=lambda taken: self._limit - taken)
        self.channel.release()
        self.log = FakeLog()
        group = Group(rate=rate, settle=Settle.AT_LEAST_ONCE)
        self.sender = Sender(number, group, pacer_for(rate), Quota(total, UNLIMITED), self.channel, TAG)
        self.sender.start(T0_NS, self.log, Distribution())
        self.batch = self.sender.batch

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Sequence numbers, intended and send times."""
        rows = self.log.rows.get(SENT, [])
        assert all((number, attempt, size) == (self.sender.number, 1, 256) for number, _, attempt, _, _, size in rows)
        return [(seq, intended_ns, sent_ns) for _, seq, _, intended_ns, sent_ns, _ in rows]

    def grant(self, room: int) -> None:
        """From here on this many may be sent; a read has revoked the earlier grant."""
        self._limit = len(self.channel.taken) + room
        self.batch.commit(revoke=True)

    def send_fresh(self, count: int) -> None:
        self.batch.discard()
        assert self.sender.send(count) == count


ACTIONS = ("send", "send", "send", "commit", "grant", "fresh", "discard")


@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9 * MS), st.integers(0, 40)), max_size=60),
)
def test_every_message_is_sent_once_in_order_and_not_before_it_is_due(
    number: int, steps: list[tuple[str, int, int]]
) -> None:
    harness = Harness(number=number)
    now_ns = T0_NS
    for action, passed_ns, room in steps:
        now_ns += passed_ns
        due = min((now_ns - T0_NS) // MS + 1, 300)
        before, allowed = len(harness.channel.taken), harness.channel.room()
        match action:
            case "send":
                next_ns = harness.batch.send_due(now_ns)
                assert next_ns == 0 or next_ns == T0_NS + len(harness.channel.taken) * MS
                assert len(harness.channel.taken) - before <= allowed
            case "fresh" if due > before and allowed > 0:
                harness.send_fresh(min(due - before, allowed))
            case "discard":
                harness.batch.discard()
            case "grant":
                harness.grant(room)
            case _:
                harness.batch.commit()
                assert (
                    harness.sender.schedule.next_seq
                    == harness.sender.window.sent
                    == harness.sender.window.in_flight
                    == len(harness.channel.taken)
                )
        assert len(harness.channel.taken) <= max(due, before)
    harness.batch.discard()
    stamps = harness.channel.taken
    assert [stamp[:5] for stamp in stamps] == [
        (0xC501, number, TAG, seq, T0_NS + seq * MS) for seq in range(len(stamps))
    ]  # fmt: skip
    assert harness.rows == [stamp[3:] for stamp in stamps]
    assert harness.sender.window.in_flight == len(stamps)
    settled = [harness.sender.window.settle(range(seq, seq + 1)) for seq in range(len(stamps))]
    assert [one.sent_ns for one in settled if one is not None] == [stamp[5] for stamp in stamps]


def test_prepared_messages_are_sent_alone_or_together_when_late() -> None:
    harness = Harness()
    assert harness.batch.send_due(T0_NS) == T0_NS + MS
    assert harness.batch.send_due(T0_NS + 3 * MS) == T0_NS + 4 * MS
    assert [stamp[3] for stamp in harness.channel.taken] == [0, 1, 2, 3]
    assert len({stamp[5] for stamp in harness.channel.taken[1:]}) == 1  # one clock reading per write
    assert harness.channel.written == 4
    assert harness.rows == []  # they are recorded together
    assert harness.batch.send_due(T0_NS + (MAX_PREPARED - 1) * MS) == T0_NS + MAX_PREPARED * MS
    assert harness.batch.used_up
    assert harness.batch.renew(T0_NS + (MAX_PREPARED - 1) * MS)
    assert [row[0] for row in harness.rows] == list(range(MAX_PREPARED))


def test_connections_of_one_rate_prepare_at_different_times() -> None:
    ends = Counter()
    for harness in (Harness(number=number) for number in range(100)):
        harness.batch.renew(T0_NS)
        while not harness.batch.used_up:
            next_ns = harness.batch.send_due(T0_NS + len(harness.channel.taken) * MS)
        ends[(next_ns - T0_NS) // MS % MAX_PREPARED] += 1
    assert max(ends.values()) <= 3


def test_a_revoked_grant_is_requested_again() -> None:
    harness = Harness()
    harness.batch.send_due(T0_NS)
    harness.grant(0)
    assert harness.batch.send_due(T0_NS + MS) == 0
    harness.grant(1)
    assert harness.batch.send_due(T0_NS + 2 * MS) == T0_NS + 2 * MS  # only one of the two that are due
    assert [stamp[3] for stamp in harness.channel.taken] == [0, 1]


@pytest.mark.parametrize(
    ("rate", "total", "room"),
    [
        (1e9 * MIN_PREPARED / QUANTUM_NS, 300, 300),  # a batch is due each time
        ((MIN_PREPARED - 1) * 1e9 / MAX_SPAN_NS, 300, 300),  # they would be recorded too late
        (1000, MIN_PREPARED - 1, 300),  # too few remain
        (1000, 300, MIN_PREPARED - 1),  # too few may be sent
    ],
)
def test_messages_not_worth_preparing_are_sent_fresh(rate: float, total: int, room: int) -> None:
    harness = Harness(rate=rate, total=total)
    harness.grant(room)
    assert harness.batch.send_due(T0_NS) == 0
    assert harness.channel.taken == []


def test_the_last_message_of_a_schedule_has_no_next_due_time() -> None:
    harness = Harness(total=MIN_PREPARED)
    for seq in range(MIN_PREPARED):
        assert harness.batch.send_due(T0_NS + seq * MS) == (T0_NS + (seq + 1) * MS if seq < MIN_PREPARED - 1 else 0)
    harness.batch.commit()
    assert harness.sender.exhausted
    assert len(harness.rows) == MIN_PREPARED


def test_prepared_messages_are_not_sent_on_a_closed_connection() -> None:
    harness = Harness()
    harness.batch.send_due(T0_NS)
    harness.channel.closed = "gone"
    assert harness.batch.send_due(T0_NS + MS) == 0
    assert len(harness.channel.taken) == 1


# -- real connections ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _connected(protocol: str, settle: Settle) -> Iterator[tuple[Any, socket.socket]]:
    """A sending channel, and its peer's socket after the handshake."""
    group = Group(protocol=protocol, size=PayloadSize.fixed(SIZE), settle=settle, rate=1000)
    make: Any = driver_of(protocol, "sender")
    with listen() as listener:
        channel = make(f"{protocol_of(protocol).scheme}://127.0.0.1:{listener.getsockname()[1]}", group)
        client, server = configure_socket(listener.accept()[0]), null_server_of(protocol)(SIZE, source=False)
    with client:
        deadline_s = time.monotonic() + 10
        while not channel.ready or not channel.room():
            channel.flush()
            server.received(fill(client, server.receive_buffer()) or 0)
            flush(client, server.outgoing)
            channel.pump()
            assert time.monotonic() < deadline_s
        try:
            yield channel, client
        finally:
            channel.close()


def _read(client: socket.socket, octets: int) -> bytes:
    client.setblocking(True)
    client.settimeout(10)
    taken = b""
    while len(taken) < octets:
        taken += client.recv(octets - len(taken))
    return taken


def _fill_bodies(channel: Any, first: int, count: int) -> None:
    for row in range(count):
        channel.bodies[row] = np.frombuffer(struct.pack(">I", first + row) * (SIZE // 4), np.uint8)


CASES = [(protocol, Settle.AT_MOST_ONCE) for protocol in sorted(calibrated_protocols())] + [
    (protocol, Settle.AT_LEAST_ONCE)
    for protocol in sorted(calibrated_protocols())
    if protocol != "amqp091"  # its null server confirms nothing, and its messages carry no numbers
]


@pytest.mark.parametrize(("protocol", "settle"), CASES)
def test_prepared_messages_have_the_same_bytes_as_a_batch(
    protocol: str, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if more messages were prepared and never sent."""
    monkeypatch.setattr("secrets.token_urlsafe", "x".__mul__)  # OpenWire messages contain the name of their connection
    written = []
    for path in ("prepared", "batch"):
        with _connected(protocol, settle) as (channel, client):
            octets = 0
            for first, count, sent_count in ((0, 3, 3), (3, 1, 1), (4, 20, 9), (13, 5, 5)):
                if path == "prepared":
                    _fill_bodies(channel, first, count)
                    frames = channel.prepare(count)
                    octets += (length := len(frames) // count) * sent_count
                    for row in range(sent_count):
                        assert channel.write(frames[row * length : (row + 1) * length])
                    channel.mark_prepared_sent(first, [1] * sent_count)
                else:
                    _fill_bodies(channel, first, sent_count)
                    assert channel.send(first, sent_count)
            assert channel.batched == 18
            written.append(_read(client, octets or len(written[0])))
    assert written[0] == written[1]


@pytest.mark.parametrize("protocol", sorted(calibrated_protocols()))
def test_bytes_that_a_full_socket_refuses_are_sent_later(protocol: str) -> None:
    with _connected(protocol, Settle.AT_MOST_ONCE) as (channel, client):
        sent = 0
        left = True
        expected = b""
        while left:
            _fill_bodies(channel, sent, 64)
            frames = channel.prepare(64)
            left = channel.write(frames)
            expected += bytes(frames)
            channel.mark_prepared_sent(sent, [1] * 64)
            sent += 64
            assert sent < 10**6
        assert channel.room() == 0 or channel.flush()  # the kernel may have sent some of it by now
        taken = b""
        while not channel.flush():
            assert select.select([client], [], [], 10)[0]
            taken += client.recv(1 << 20)
        assert channel.room() > 0
        assert taken + _read(client, len(expected) - len(taken)) == expected


def test_a_broken_connection_is_found_by_writing_and_reported_by_reading() -> None:
    with _connected("stomp", Settle.AT_MOST_ONCE) as (channel, client):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        deadline_s = time.monotonic() + 10
        while channel.write(channel.prepare(1)):
            channel.mark_prepared_sent(0, [1])
            assert time.monotonic() < deadline_s
        assert channel.room() == 0
        while channel.closed is None:
            channel.pump()
            assert time.monotonic() < deadline_s
