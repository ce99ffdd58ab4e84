"""Does the relay keep every message until it is settled, and isolate the faults of its clients?"""

import random
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.errors import PeerError
from crescendo.net.sockets import flush, listen
from crescendo.systems.relay import routing
from crescendo.systems.relay.router_links import Inlet, RoutedBatch
from crescendo.systems.relay.server import Relay
from crescendo.systems.relay.unsettled import take_settled
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.performatives import Rejected, Released
from relay_client import RelayClient

Connect = Callable[[], RelayClient]


def serve(credentials: Credentials | None = None) -> Iterator[int]:
    listener = listen()
    port = listener.getsockname()[1]
    relay = Relay(listener, credentials)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            relay.serve()
        except BaseException as err:
            failures.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield port
    finally:
        relay.stopping = True
        thread.join()
        relay.close()
    assert failures == []


@pytest.fixture
def port() -> Iterator[int]:
    yield from serve()


@pytest.fixture
def join(port: int) -> Iterator[Connect]:
    """Connects clients to one relay."""
    clients: list[RelayClient] = []

    def make() -> RelayClient:
        clients.append(RelayClient(port))
        return clients[-1]

    yield make
    for client in clients:
        client.die()


def bodies(count: int, first: int = 0, size: int = 32) -> list[bytes]:
    return [number.to_bytes(8, "big").ljust(size, b".") for number in range(first, first + count)]


def test_messages_are_delivered_in_order_and_accepted(join: Connect) -> None:
    sender, receiver = join(), join()
    receiver.receiver("q", credit=1000)
    sender.send(sender.sender("q"), *bodies(300), *bodies(10, 300, size=200), *bodies(10, 310))
    receiver.until(lambda: len(receiver.messages) == 320)
    assert receiver.bodies() == bodies(300) + bodies(10, 300, size=200) + bodies(10, 310)
    sender.until(lambda: len(sender.settled) == 320)


def test_messages_wait_for_a_receiver_and_for_its_credit(join: Connect) -> None:
    sender, receiver = join(), join()
    sender.send(sender.sender("q"), *bodies(20))
    sender.until(lambda: len(sender.settled) == 20)
    handle = receiver.receiver("q")
    receiver.quiet()
    assert receiver.messages == []
    receiver.connection.grant(handle, 7)
    receiver.until(lambda: len(receiver.messages) == 7)
    receiver.quiet()
    assert receiver.bodies() == bodies(7)


def test_credit_that_arrives_together_with_the_attach_is_used(join: Connect) -> None:
    sender, receiver = join(), join()
    sender.send(sender.sender("q"), *bodies(20))
    sender.until(lambda: len(sender.settled) == 20)
    handle = receiver.connection.attach_receiver("eager", "q", settled=False)
    receiver.connection.grant(handle, 100)  # in the same write: no later event triggers delivery
    receiver.until(lambda: len(receiver.messages) == 20)


@pytest.mark.parametrize("way", ["detach", "close", "die"])
def test_messages_that_arrive_together_with_the_close_are_delivered(join: Connect, way: str) -> None:
    sender, receiver = join(), join()
    receiver.receiver("q", settled=True, credit=100)
    handle = sender.sender("q")
    sender.until(lambda: sender.connection.sendable(handle) > 0)
    for body in bodies(20):
        sender.connection.transfer_one(handle, body, settled=True)
    if way == "detach":
        sender.connection.detach(handle)
    elif way == "close":
        sender.connection.close()
    flush(sender.socket, sender.connection.outgoing)
    if way == "die":
        sender.socket.close()
    receiver.until(lambda: len(receiver.messages) == 20)
    assert receiver.bodies() == bodies(20)


def test_a_receiver_that_stops_reading_for_a_while_gets_the_rest_later(join: Connect) -> None:
    sender, receiver = join(), join()
    receiver.receiver("q", settled=True, credit=1000)
    large = bodies(300, size=50_000)  # fifteen megabytes: more than sockets hold
    sender.send(sender.sender("q"), *large)
    sender.until(lambda: len(sender.settled) == 300)
    receiver.until(lambda: len(receiver.messages) == 300)
    assert receiver.bodies() == large


def test_competing_consumers_share_a_queue(join: Connect) -> None:
    sender, one, other = join(), join(), join()
    for receiver in (one, other):
        receiver.receiver("q", credit=1000)
    handle = sender.sender("q")
    for first in range(0, 200, 10):
        sender.send(handle, *bodies(10, first))
        sender.until(lambda sent=first + 10: len(sender.settled) == sent)
    one.until(lambda: (one.pump(0), other.pump(0)) and len(one.messages) + len(other.messages) == 200)
    assert sorted(one.bodies() + other.bodies()) == bodies(200)
    assert min(len(one.messages), len(other.messages)) >= 40  # fair, not alternating


def test_a_topic_copies_to_every_attached_receiver(join: Connect) -> None:
    sender, one, other, late = join(), join(), join(), join()
    for receiver in (one, other):
        receiver.receiver("news", topic=True, credit=1000)
    handle = sender.sender("news", topic=True)
    sender.send(handle, *bodies(50))
    for receiver in (one, other):
        receiver.until(lambda receiver=receiver: len(receiver.messages) == 50)
        assert receiver.bodies() == bodies(50)
    late.receiver("news", topic=True, credit=1000)
    sender.send(handle, *bodies(5, 50))
    late.until(lambda: len(late.messages) == 5)
    assert late.bodies() == bodies(5, 50)


def test_a_queue_and_a_topic_of_the_same_name_are_separate(join: Connect) -> None:
    sender, queue, topic = join(), join(), join()
    queue.receiver("name", credit=10)
    topic.receiver("name", topic=True, credit=10)
    sender.send(sender.sender("name"), *bodies(3))
    queue.until(lambda: len(queue.messages) == 3)
    topic.quiet()
    assert topic.messages == []


@pytest.mark.parametrize("way", ["die", "detach", "end"])
def test_unsettled_messages_of_a_lost_receiver_go_to_the_next(join: Connect, way: str) -> None:
    sender, first, second = join(), join(), join()
    handle = first.receiver("q", credit=10)
    sender.send(sender.sender("q"), *bodies(10))
    first.until(lambda: len(first.messages) == 10)
    first.connection.settle(0, 3)
    first.pump(0)
    second.receiver("q", credit=100)
    second.quiet(0.05)
    assert second.messages == []
    if way == "die":
        first.die()
    elif way == "detach":
        first.connection.detach(handle)
        first.pump(0)
    else:
        first.socket.send(bytes.fromhex("0000000c 02000000 00531745"))
    second.until(lambda: len(second.messages) == 6)
    assert second.bodies() == bodies(6, 4)


def test_settling_out_of_order_frees_only_what_was_settled(join: Connect) -> None:
    sender, first, second = join(), join(), join()
    first.receiver("q", credit=10)
    sender.send(sender.sender("q"), *bodies(10))
    first.until(lambda: len(first.messages) == 10)
    first.connection.settle(7, 8)
    first.connection.settle(2, 4)
    first.pump(0)
    first.quiet(0.05)
    first.die()
    second.receiver("q", credit=100)
    second.until(lambda: len(second.messages) == 5)
    assert second.bodies() == [bodies(10)[n] for n in (0, 1, 5, 6, 9)]


def test_released_messages_are_redelivered_and_rejected_ones_are_not(join: Connect) -> None:
    sender, receiver = join(), join()
    handle = receiver.receiver("q", credit=4)
    sender.send(sender.sender("q"), *bodies(4))
    receiver.until(lambda: len(receiver.messages) == 4)
    receiver.connection.settle(0, 1, Rejected())
    receiver.connection.settle(2, 3, Released())
    receiver.connection.grant(handle, 10)
    receiver.until(lambda: len(receiver.messages) == 6)
    receiver.quiet()
    assert receiver.bodies()[4:] == bodies(2, 2)


def test_presettled_messages_are_not_kept(join: Connect) -> None:
    sender, first, second = join(), join(), join()
    first.receiver("q", settled=True, credit=10)
    sender.send(sender.sender("q"), *bodies(5))
    first.until(lambda: len(first.messages) == 5)
    first.die()
    second.receiver("q", credit=100)
    second.quiet()
    assert second.messages == []


def has_credit(sender: RelayClient, handle: int) -> bool:
    """Whether one more message may be sent, once the relay has stored all that were sent before."""
    if sender.connection.sendable(handle):
        return True
    sender.until(lambda: len(sender.settled) == sender.connection.deliveries_sent or sender.connection.sendable(handle))
    if not sender.connection.sendable(handle):
        sender.quiet()  # credit may follow the last settlement
    return sender.connection.sendable(handle) > 0


def test_credit_is_withheld_at_the_depth_limit_and_granted_again(
    join: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "DEPTH_LIMIT", 100)
    monkeypatch.setattr(routing, "CREDIT", 40)
    sender, receiver = join(), join()
    handle = sender.sender("q")
    sent = 0
    while has_credit(sender, handle):
        sender.connection.transfer_one(handle, bodies(1, sent)[0], settled=False)
        sent += 1
    assert 100 <= sent <= 140
    receiver.receiver("q", credit=5000)
    sender.until(lambda: sender.connection.sendable(handle) > 0)
    receiver.until(lambda: len(receiver.messages) == sent)
    assert receiver.bodies() == bodies(sent)


def test_a_subscriber_that_dies_does_not_block_its_topic(join: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "DEPTH_LIMIT", 100)
    monkeypatch.setattr(routing, "CREDIT", 40)
    sender, stuck, awake = join(), join(), join()
    stuck.receiver("news", topic=True)  # never any credit
    awake.receiver("news", topic=True, credit=5000)
    handle = sender.sender("news", topic=True)
    sent = 0
    while has_credit(sender, handle):
        sender.connection.transfer_one(handle, bodies(1)[0], settled=False)
        sent += 1
    assert 100 <= sent <= 140
    stuck.die()
    sender.until(lambda: sender.connection.sendable(handle) > 0)


def test_large_messages_are_sent_in_several_frames(join: Connect) -> None:
    sender, receiver = join(), join()
    receiver.receiver("q", credit=100)
    large = [random.Random(n).randbytes(200_000) for n in range(5)]
    sender.send(sender.sender("q"), *large)
    receiver.until(lambda: len(receiver.messages) == 5)
    assert receiver.bodies() == large


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"AMQP\x00\x00\x09\x01",
    b"AMQP\x00\x01\x00\x00\x00\x00\x00\x04",
    b"AMQP\x00\x01\x00\x00" + bytes.fromhex("00000010 02000000 005310 c0 03 01 a1 00"),
    b"AMQP\x00\x01\x00\x00" + bytes(200),
    random.Random(1).randbytes(5000),
    b"",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_a_client_that_sends_garbage_affects_no_other(join: Connect, port: int, garbage: bytes) -> None:
    sender, receiver = join(), join()
    receiver.receiver("q", credit=1000)
    handle = sender.sender("q")
    sender.send(handle, *bodies(10))
    with socket.create_connection(("127.0.0.1", port)) as intruder:
        intruder.sendall(garbage)
        sender.send(handle, *bodies(10, 10))
    sender.send(handle, *bodies(10, 20))
    receiver.until(lambda: len(receiver.messages) == 30)
    assert receiver.bodies() == bodies(30)


def test_clients_that_die_at_any_moment_affect_no_other(join: Connect, port: int) -> None:
    sender, receiver = join(), join()
    handle = sender.sender("q")
    generator = random.Random(3)
    for number in range(15):
        victim = RelayClient(port)
        victim.receiver("q", credit=generator.randrange(1, 20))
        sender.send(handle, *bodies(10, number * 10))
        victim.pump(0)
        victim.die()
    receiver.receiver("q", credit=5000)
    receiver.until(lambda: len(set(receiver.bodies())) == 150)
    assert sorted(receiver.bodies()) == bodies(150)


def test_a_link_without_an_address_is_refused_with_the_reason(join: Connect) -> None:
    client = join()
    client.connection.attach_sender("x", "", settled=False)
    client.until(lambda: client.detach_reason() is not None)
    assert "needs an address" in (client.detach_reason() or "")
    client.send(client.sender("q"), *bodies(1))  # the connection stays open


def test_only_clients_with_the_password_may_connect_and_others_get_a_reason() -> None:
    for port in serve(Credentials("me", "secret word")):
        RelayClient(port, Credentials("me", "secret word")).die()
        for wrong in (Credentials("me", "secret"), Credentials("you", "secret word")):
            with pytest.raises(PeerError, match="rejects user"):
                RelayClient(port, wrong)
        with pytest.raises(PeerError, match="give a user and password"):
            RelayClient(port)


# -- bookkeeping -----------------------------------------------------------------------------------------------------


def _routed(rows: np.ndarray) -> RoutedBatch:
    """A batch of a router, whose ids are the values of its rows."""
    return RoutedBatch(cast("Inlet", None), rows[:, 0].astype(np.uint32), rows, 0, 1, settled=False, arrived_ns=0)


@pytest.mark.parametrize(
    ("batch_of", "values"), [(np.asarray, lambda rows: rows[:, 0]), (_routed, lambda batch: batch.ids)]
)
@given(
    st.sampled_from([0, 100, 2**32 - 12]),
    st.lists(st.integers(1, 6), max_size=6),
    st.lists(st.tuples(st.integers(-2, 30), st.integers(-2, 30)), max_size=5),
)
def test_settled_ranges_are_removed_as_single_deliveries_would_be(
    batch_of: Callable[[np.ndarray], Any],
    values: Callable[[Any], np.ndarray],
    start: int,
    sizes: list[int],
    ranges: list[tuple[int, int]],
) -> None:
    unsettled: deque[tuple[int, Any]] = deque()
    waiting: list[int] = []
    for size in sizes:
        first = len(waiting)
        waiting += range(first, first + size)
        rows = np.arange(first, first + size, dtype=np.uint8).reshape(size, 1)
        unsettled.append(((start + first) % 2**32, batch_of(rows)))
    for first, last in ranges:
        taken = take_settled(unsettled, (start + first) % 2**32, (start + last) % 2**32)
        expected = [n for n in waiting if first <= n <= last]
        waiting = [n for n in waiting if n not in expected]
        assert [int(n) for batch in taken for n in values(batch)] == expected
        left = [((number + i) % 2**32, int(n)) for number, batch in unsettled for i, n in enumerate(values(batch))]
        assert left == [((start + n) % 2**32, n) for n in waiting]
