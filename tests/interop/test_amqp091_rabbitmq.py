"""Do we, pika and RabbitMQ understand each other over AMQP 0-9-1, both ways, to the last message?"""

import secrets
import socket
import time
from contextlib import closing

import pytest

from amqp091_peers import bodies, check_ledger, depth, group, pika_channel, pika_publish, pika_receive, refused, through
from crescendo.load.protocols import amqp091
from crescendo.load.protocols.amqp091 import Amqp091Receiver, Amqp091Sender
from crescendo.model.errors import ConfigError
from crescendo.model.workload import STAMP_BYTES
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Flag, Settlement
from crescendo.systems.instance import RunningInstance
from crescendo.wire.stamp import MAGIC
from pumping import TIMEOUT_S, pumped, ready, receive_all, send_all

COUNT = 20_000
SIZES = [(2000, 32), (500, 256), (500, 4096), (20, 300_000)]
PATHS = [(*pair, True) for pair in SIZES] + [(300, 32, False), (10, 300_000, False)]
paths = pytest.mark.parametrize(
    ("count", "size", "batching"), PATHS, ids=[f"{size}B-{'batch' if batch else 'scalar'}" for _, size, batch in PATHS]
)
settling = pytest.mark.parametrize("at_most_once", [False, True], ids=["at-least-once", "at-most-once"])


@pytest.fixture
def url(rabbitmq: RunningInstance) -> str:
    return rabbitmq.endpoints["amqp091"]


@pytest.fixture
def name() -> str:
    """A queue or topic of its own for each test on the shared broker."""
    return f"amqp091-{secrets.token_hex(6)}"


# -- everything, exactly ---------------------------------------------------------------------------------------------


def test_every_message_arrives_once_and_in_order_through_a_queue(url: str, name: str) -> None:
    check_ledger(url, f"queue://{name}", COUNT)
    assert depth(url, name) == 0


def test_every_message_arrives_once_and_in_order_through_a_topic(url: str, name: str) -> None:
    check_ledger(url, f"topic://{name}", COUNT // 4)


def test_at_most_once_claims_no_outcomes_and_loses_nothing_on_a_healthy_broker(url: str, name: str) -> None:
    load = group(f"queue://{name}", at_most_once=True)
    sent, received, _ = through(url, load, COUNT, expected=COUNT)
    assert sent.count[SETTLED] == 0
    assert sent.count[SENT] == COUNT
    assert received.column(RECEIVED, 2) == list(range(COUNT))


def test_each_receiver_of_a_topic_is_owed_every_message(url: str, name: str) -> None:
    payloads = bodies(300, 64)
    load = group(f"topic://{name}", 64)
    with closing(Amqp091Receiver(url, load)) as one, closing(Amqp091Receiver(url, load)) as other:
        for receiver in (one, other):
            ready(receiver).begin()
        with closing(Amqp091Sender(url, load)) as sender:
            send_all(sender, payloads, settled=False)
        assert receive_all(one, 300) == receive_all(other, 300) == payloads


# -- with a foreign client -------------------------------------------------------------------------------------------


@paths
@settling
def test_pika_receives_what_we_send(
    url: str, name: str, count: int, size: int, batching: bool, at_most_once: bool
) -> None:
    payloads = bodies(count, size)
    with closing(Amqp091Sender(url, group(name, size, at_most_once=at_most_once), batching=batching)) as sender:
        outcomes = send_all(sender, payloads, settled=at_most_once)
        with pika_channel(url) as channel:
            assert pika_receive(channel, name, count) == payloads
        assert sender.batched == (count if batching and size < 131_000 else 0)
    if at_most_once:
        assert outcomes == []
    else:
        settled = sorted(int(seq) for seqs, _ in outcomes for seq in seqs)
        assert settled == list(range(count))
        assert {settlement for _, settlement in outcomes} == {Settlement.ACCEPTED}


@paths
@settling
def test_we_receive_what_pika_sends(
    url: str, name: str, count: int, size: int, batching: bool, at_most_once: bool
) -> None:
    payloads = bodies(count, size)
    with closing(Amqp091Receiver(url, group(name, size, at_most_once=at_most_once), batching=batching)) as receiver:
        ready(receiver)
        pika_publish(url, name, payloads)
        assert pumped(receiver, 0.2) == [], "a message arrived before it was requested"
        receiver.begin()
        assert receive_all(receiver, count) == payloads
        pumped(receiver, 0.2)
    assert depth(url, name) == 0, "not everything was acknowledged"


def test_a_topic_carries_what_pika_publishes_and_what_we_publish(url: str, name: str) -> None:
    payloads = bodies(200, 64)
    with pika_channel(url) as channel, closing(Amqp091Receiver(url, group(f"topic://{name}.#", 64))) as receiver:
        ready(receiver).begin()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "amq.topic", f"{name}.*")
        pika_publish(url, f"{name}.a", payloads, exchange="amq.topic")
        assert receive_all(receiver, 200) == pika_receive(channel, queue, 200) == payloads
        with closing(Amqp091Sender(url, group(f"topic://{name}.b", 64))) as sender:
            send_all(sender, payloads, settled=False)
        assert receive_all(receiver, 200) == pika_receive(channel, queue, 200) == payloads


def test_unacknowledged_messages_are_redelivered_and_marked(url: str, name: str) -> None:
    with pika_channel(url) as channel:
        channel.queue_declare(name, durable=True)
    pika_publish(url, name, bodies(20, 64))
    with pika_channel(url) as channel:
        for number, _ in enumerate(channel.consume(name), 1):
            if number == 10:
                break  # without an acknowledgement; the other ten are prefetched and requeued too
    flags: list[bool] = []
    with closing(Amqp091Receiver(url, group(name, 64))) as receiver:
        ready(receiver).begin()
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(flags) < 20 and time.monotonic() < deadline_s:
            for arrived in receiver.pump():
                flags += [arrived.redelivered] * len(arrived.payloads)
            time.sleep(0.01)
    assert flags == [True] * 20
    assert Flag.REDELIVERED == 1


def test_an_existing_queue_is_used_as_it_is(url: str, name: str) -> None:
    with pika_channel(url) as channel:
        channel.queue_declare(name, durable=False, auto_delete=False, arguments={"x-max-length": 100})
        with closing(Amqp091Sender(url, group(name, 64))) as sender:
            send_all(sender, bodies(150, 64), settled=False)
    assert depth(url, name) == 100


# -- what a broker refuses -------------------------------------------------------------------------------------------


def test_rejections_by_a_full_queue_are_reported_message_by_message(url: str, name: str) -> None:
    with pika_channel(url) as channel:
        channel.queue_declare(name, arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
        with closing(Amqp091Sender(url, group(name, 64))) as sender:
            outcomes = send_all(sender, bodies(500, 64), settled=False)
        accepted = sum(len(seqs) for seqs, how in outcomes if how is Settlement.ACCEPTED)
        rejected = sum(len(seqs) for seqs, how in outcomes if how is Settlement.REJECTED)
        assert accepted + rejected == 500
        assert accepted == channel.queue_declare(name, passive=True).method.message_count < 500


def test_messages_for_a_queue_that_vanished_are_released_not_accepted(url: str, name: str) -> None:
    with closing(Amqp091Sender(url, group(name, STAMP_BYTES))) as sender:
        ready(sender)
        with pika_channel(url) as channel:
            channel.queue_delete(name)
        sender.stamps["magic"] = MAGIC
        sender.stamps["seq"][:50] = range(50)
        sender.send(0, 50)
        outcomes = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(outcomes) < 50 and time.monotonic() < deadline_s:
            outcomes += pumped(sender)
        outcomes += pumped(sender, 0.2)
    assert outcomes == [(range(seq, seq + 1), Settlement.RELEASED) for seq in range(50)]


def test_a_queue_that_vanishes_under_a_receiver_is_noticed(url: str, name: str) -> None:
    with closing(Amqp091Receiver(url, group(name))) as receiver:
        ready(receiver).begin()
        pumped(receiver, 0.2)
        with pika_channel(url) as channel:
            channel.queue_delete(name)
        assert "is the queue gone?" in refused(receiver)


def test_a_wrong_password_is_refused_with_the_brokers_reason(url: str) -> None:
    address = url.rpartition("@")[2]
    with closing(Amqp091Sender(f"amqp091://nobody:wrong@{address}", group("q"))) as sender:
        said = refused(sender)
    assert "ACCESS_REFUSED" in said
    assert said.endswith("are user and password right?")


def test_an_unknown_virtual_host_is_refused_with_the_brokers_reason(url: str) -> None:
    with closing(Amqp091Receiver(f"{url.rstrip('/')}/nowhere%20at%20all", group("q"))) as receiver:
        assert "vhost nowhere at all not found" in refused(receiver)


def test_a_foreign_exclusive_queue_is_refused_with_the_brokers_reason(url: str, name: str) -> None:
    with pika_channel(url) as channel:
        channel.queue_declare(name, exclusive=True)
        with closing(Amqp091Receiver(url, group(name))) as receiver:
            assert "RESOURCE_LOCKED" in refused(receiver)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "does not speak AMQP"), (b"", "without a reply; does it speak AMQP 0-9-1?")],
)
def test_another_protocol_behind_the_port_is_refused_with_a_reason(answer: bytes, expected: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(Amqp091Sender(f"amqp091://127.0.0.1:{listener.getsockname()[1]}", group("q"))) as sender,
    ):
        client, _ = listener.accept()
        with client:
            sender.flush()
            assert client.recv(8) == b"AMQP\x00\x00\x09\x01"
            client.sendall(answer)
        assert expected in refused(sender)


def test_a_name_too_long_for_the_protocol_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="255 bytes"):
        Amqp091Sender(url, group("queue://" + "q" * 256))


# -- heartbeats ------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_idle_connections_alive_both_ways(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides time out after two seconds of silence; after five idle seconds both still work."""
    monkeypatch.setattr(amqp091, "HEARTBEAT_S", 1)
    with (
        closing(Amqp091Sender(url, group(name, 64))) as sender,
        closing(Amqp091Receiver(url, group(name, 64))) as receiver,
    ):
        ready(sender)
        ready(receiver).begin()
        deadline_s = time.monotonic() + 5
        while time.monotonic() < deadline_s:
            pumped(sender, 0.1)
            pumped(receiver, 0.1)
        send_all(sender, bodies(10, 64), settled=False)
        assert receive_all(receiver, 10) == bodies(10, 64)
