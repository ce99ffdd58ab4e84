"""Does a real broker accept everything that the codec can encode, and do we decode all its answers?

The sans-IO connection on a blocking socket, against RabbitMQ; pika verifies what arrived.
"""

import secrets
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from amqp091_peers import pika_channel
from crescendo.systems.instance import RunningInstance
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.events import (
    ChannelClosed,
    ChannelOpened,
    Confirmed,
    Deliveries,
    MethodReceived,
    Opened,
    Returned,
)
from crescendo.wire.amqp091.handshake import plain
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicReject,
    ConfirmSelectOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    TxCommit,
    TxSelect,
)
from crescendo.wire.amqp091.properties import PERSISTENT, Properties
from pumping import TIMEOUT_S


class WireSession:
    """A connection with its first channel open, one request and one answer at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
        self.connection = Connection(sign_in=plain(unquote(parts.username or ""), unquote(parts.password or "")))
        self.next(Opened)
        self.connection.open_channel(1)
        self.next(ChannelOpened)

    def next(self, kind: type) -> Any:
        """Read until an event of this kind arrives."""
        while True:
            while (event := self.connection.next_event()) is not None:
                if isinstance(event, kind):
                    return event
            while self.connection.outgoing:
                self._socket.sendall(self.connection.outgoing.popleft())
            count = self._socket.recv_into(self.connection.receive_buffer())
            assert count, "the broker closed the connection"
            self.connection.received(count)

    def request(self, method: Method) -> Method:
        """Send a method that has an answer; returns the answer."""
        self.connection.send(1, method)
        answer = self.next(MethodReceived)
        assert type(answer.method).__name__.startswith(type(method).__name__)
        return answer.method

    def publish(self, exchange: str, key: str, body: bytes, properties: Properties, *, mandatory: bool = False) -> None:
        self.connection.publish(1, BasicPublish(0, exchange, key, mandatory), body, properties)

    def confirmed(self, count: int) -> None:
        open_numbers = count
        while open_numbers:
            event = self.next(Confirmed)
            assert event.accepted
            open_numbers -= sum(last - first + 1 for first, last in event.ranges)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def session(rabbitmq: RunningInstance) -> Iterator[WireSession]:
    session = WireSession(rabbitmq.endpoints["amqp091"])
    yield session
    session.close()


@pytest.fixture
def name() -> str:
    return f"amqp091-wire-{secrets.token_hex(6)}"


@pytest.mark.parametrize(
    ("kind", "binding", "key", "arrives"),
    [
        ("direct", "a", "a", True), ("direct", "a", "b", False),
        ("fanout", "a", "b", True),
        ("topic", "a.*", "a.b", True), ("topic", "a.*", "a.b.c", False), ("topic", "a.#", "a.b.c", True),
    ],
)  # fmt: skip
def test_exchanges_route_as_declared(
    session: WireSession, name: str, kind: str, binding: str, key: str, arrives: bool
) -> None:
    session.request(ExchangeDeclare(exchange=name, type=kind, durable=True, auto_delete=True))
    session.request(QueueDeclare(queue=name, exclusive=True))
    session.request(QueueBind(queue=name, exchange=name, routing_key=binding))
    session.connection.select_confirms(1)
    assert isinstance(session.next(MethodReceived).method, ConfirmSelectOk)
    session.publish(name, key, b"hello", Properties(), mandatory=True)
    if not arrives:
        returned = session.next(Returned)
        assert (returned.method.reply_code, returned.method.routing_key, returned.body) == (312, key, b"hello")
    session.confirmed(1)
    answer = session.request(QueueDeclare(queue=name, passive=True))
    assert isinstance(answer, QueueDeclareOk)
    assert answer.message_count == arrives


def test_every_property_reaches_pika_and_comes_back(session: WireSession, rabbitmq: RunningInstance, name: str) -> None:
    sent = Properties(
        content_type="text/plain", content_encoding="utf-8", headers={"n": 7, "deep": {"list": ["a", True, None]}},
        delivery_mode=PERSISTENT, priority=4, correlation_id="c", reply_to="r", expiration="60000", message_id="m",
        timestamp=1_700_000_000, type="t", user_id=None, app_id="a",
    )  # fmt: skip
    session.request(QueueDeclare(queue=name, durable=True, arguments={"x-max-priority": 9}))
    session.publish("", name, bytes(500_000), sent)
    session.request(BasicQos(prefetch_count=1))
    with pika_channel(rabbitmq.endpoints["amqp091"]) as channel:
        method, received, body = next(channel.consume(name, inactivity_timeout=TIMEOUT_S))
        assert method is not None
        assert body == bytes(500_000)
        for field in ("headers", "delivery_mode", "priority", "expiration", "timestamp", "correlation_id", "app_id"):
            assert getattr(received, field) == getattr(sent, field)
        channel.basic_publish("", name, b"back", received)
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
    session.connection.send(1, BasicConsume(queue=name, consumer_tag="me"))
    event = session.next(Deliveries)
    assert (event.bodies.tobytes(), event.properties) == (b"back", sent)
    assert event.method.consumer_tag == "me"


def test_messages_are_acknowledged_rejected_and_requeued_one_by_one(session: WireSession, name: str) -> None:
    session.request(QueueDeclare(queue=name, exclusive=True))
    for letter in (b"a", b"b", b"c", b"d"):
        session.publish("", name, letter, Properties())
    received = []
    for answer in (
        BasicAck,
        lambda tag: BasicReject(tag, requeue=False),
        lambda tag: BasicNack(tag, requeue=True),
        lambda tag: BasicAck(tag, multiple=True),
        BasicAck,
    ):
        session.connection.send(1, BasicGet(queue=name))
        event = session.next(Deliveries)
        received.append((event.bodies.tobytes(), event.redelivered))
        session.connection.send(1, answer(int(event.tags[0])))
    assert received == [(b"a", False), (b"b", False), (b"c", False), (b"c", True), (b"d", False)]
    session.connection.send(1, BasicGet(queue=name))
    assert isinstance(session.next(MethodReceived).method, BasicGetEmpty)


def test_a_transaction_publishes_when_it_is_committed(session: WireSession, name: str) -> None:
    session.request(QueueDeclare(queue=name, exclusive=True))
    session.request(TxSelect())
    session.publish("", name, b"x", Properties())
    assert session.request(QueueDeclare(queue=name, passive=True)) == QueueDeclareOk(name, 0, 0)
    session.request(TxCommit())
    assert session.request(QueueDeclare(queue=name, passive=True)) == QueueDeclareOk(name, 1, 0)


def test_declared_objects_can_be_deleted(session: WireSession, name: str) -> None:
    session.request(ExchangeDeclare(exchange=name, type="fanout"))
    session.request(ExchangeBind(destination=name, source="amq.fanout", routing_key=""))
    session.request(QueueDeclare(queue=name))
    session.request(QueueBind(queue=name, exchange=name))
    session.publish("amq.fanout", "", b"x", Properties())
    assert session.request(QueuePurge(queue=name)) == QueuePurgeOk(1)
    session.request(QueueUnbind(queue=name, exchange=name))
    session.request(ExchangeDelete(exchange=name))
    assert session.request(QueueDelete(queue=name)) == QueueDeleteOk(0)


def test_a_failed_channel_is_closed_with_the_brokers_reason_and_opens_again(session: WireSession, name: str) -> None:
    session.connection.send(1, QueueDeclare(queue=name, passive=True))
    closed = session.next(ChannelClosed)
    assert closed.code == 404
    assert f"no queue '{name}'" in closed.reason
    session.connection.open_channel(1)
    session.next(ChannelOpened)
    assert session.request(QueueDeclare(queue=name, exclusive=True)) == QueueDeclareOk(name, 0, 0)
