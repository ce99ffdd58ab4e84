"""Do we, pika and Qpid Broker-J understand each other over AMQP 0-9-1? It shares no code with RabbitMQ."""

import secrets
from contextlib import closing

import pytest

from amqp091_peers import bodies, check_ledger, group, pika_channel, pika_publish, pika_receive, refused, through
from crescendo.load.protocols.amqp091 import Amqp091Receiver, Amqp091Sender
from crescendo.record.schema import RECEIVED, SENT, SETTLED
from crescendo.systems.instance import RunningInstance
from pumping import ready, receive_all, send_all

COUNT = 20_000
SIZES = [(1000, 32), (300, 256), (10, 300_000)]
sizes = pytest.mark.parametrize(("count", "size"), SIZES, ids=[f"{size}B" for _, size in SIZES])


@pytest.fixture
def url(qpid_broker_j: RunningInstance) -> str:
    return qpid_broker_j.endpoints["amqp091"]


@pytest.fixture
def name() -> str:
    return f"amqp091-{secrets.token_hex(6)}"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_every_message_arrives_once_and_in_order(url: str, name: str, kind: str) -> None:
    check_ledger(url, f"{kind}://{name}", COUNT if kind == "queue" else COUNT // 4)


def test_at_most_once_claims_no_outcomes(url: str, name: str) -> None:
    sent, received, _ = through(url, group(f"queue://{name}", at_most_once=True), COUNT, expected=COUNT)
    assert (sent.count[SENT], sent.count[SETTLED]) == (COUNT, 0)
    assert received.column(RECEIVED, 2) == list(range(COUNT))


@sizes
def test_pika_receives_what_we_send(url: str, name: str, count: int, size: int) -> None:
    payloads = bodies(count, size)
    with closing(Amqp091Sender(url, group(name, size))) as sender, pika_channel(url) as channel:
        outcomes = send_all(sender, payloads, settled=False)
        assert pika_receive(channel, name, count) == payloads
    assert sorted(int(n) for seqs, _ in outcomes for n in seqs) == list(range(count))


@sizes
def test_we_receive_what_pika_sends(url: str, name: str, count: int, size: int) -> None:
    payloads = bodies(count, size)
    with closing(Amqp091Receiver(url, group(name, size))) as receiver:
        ready(receiver).begin()
        pika_publish(url, name, payloads)
        assert receive_all(receiver, count) == payloads


def test_a_refused_client_gets_the_brokers_reason(url: str) -> None:
    address = url.rpartition("@")[2]
    with closing(Amqp091Sender(f"amqp091://nobody:wrong@{address}", group("q"))) as sender:
        assert "Authentication failed" in refused(sender)
    with closing(Amqp091Receiver(f"{url}/nowhere", group("q"))) as receiver:
        assert "Unknown virtual host: 'nowhere'" in refused(receiver)
