"""Streams of AMQP 0-9-1 in both directions, and connections that read them as the load generator does."""

import random
from functools import partial

from amqp091_streams import HEARTBEAT, PUBLISH, SHAPES, Script, ack, close, method, nack, new_client, prologue, short
from crescendo.wire.amqp091.batch import PublishBatch
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
from crescendo.wire.amqp091.methods import BasicAck, QueueDeclare, QueueDeclareOk
from fuzzing import FuzzTarget, overwrite_length, read_and_react
from stream_feed import events_of, take_outgoing


def server_stream() -> bytes:
    """The bytes of a server to a client that publishes with confirms and receives."""
    script = Script()
    for shape in SHAPES:
        for _ in range(6):
            script.message(shape, 1, 40)
        script.fragmented(shape, 2, 120, 50, HEARTBEAT)
    script.returned(1, bytes(40))
    confirms = b"".join(ack(1, tag) for tag in range(1, 8)) + nack(1, 9) + ack(1, 20, multiple=True)
    blocked = method(0, 10, 60, short("memory")) + method(0, 10, 61) + method(1, 20, 20, b"\0")
    ends = close(404, "NOT_FOUND", channel=2) + close(320, "CONNECTION_FORCED")
    return prologue() + bytes(script.octets) + confirms + blocked + HEARTBEAT + ends


def client_stream() -> bytes:
    """The bytes of a client that publishes."""
    client = Connection()
    sent = take_outgoing(client)
    list(events_of(client, prologue(())))
    client.open_channel(1)
    client.send(1, QueueDeclare(queue="q", arguments={"x-max-length": 5, "x-list": [1, None, {"deep": 2.5}]}))
    client.select_confirms(1)
    batch = PublishBatch(exchange="", routing_key="q", body_length=40)
    client.publish_batch(batch, 20)
    client.publish(1, PUBLISH, bytes(300))
    client.send(1, BasicAck(3, multiple=True))
    client.heartbeat()
    client.close_channel(1)
    client.close()
    return sent + take_outgoing(client)


def read_damaged(stream: bytes, rng: random.Random, *, server: bool) -> int:
    batching = rng.random() < 0.8
    connection = Connection(server=True, batching=batching) if server else new_client(batching=batching, published=100)
    return read_and_react(connection, stream, rng, partial(react, server=server))


def react(connection: Connection, event: object, *, server: bool) -> None:
    match event:
        case Deliveries():
            assert event.bodies.sum() >= 0  # every announced byte is present
            assert len(event.tags) == len(event.bodies) > 0
            connection.send(event.channel, BasicAck(int(event.tags[-1]), multiple=True))
        case Confirmed(ranges=ranges):
            assert all(1 <= first <= last <= 100 for first, last in ranges)
        case Returned(body=body):
            assert isinstance(body, bytes)
        case ChannelClosed(channel=channel):
            assert channel not in connection.channels
        case ChannelOpened(channel=channel):
            assert connection.publishable(channel) or connection.blocked is not None
        case MethodReceived(channel=channel, method=QueueDeclare(queue=queue)) if server:
            connection.send(channel, QueueDeclareOk(queue, 0, 0))
        case Opened(properties=properties):
            assert isinstance(properties, dict)


def read_undamaged(*, server: bool) -> None:
    connection = Connection(server=True) if server else new_client()
    for event in events_of(connection, client_stream() if server else server_stream()):
        if not isinstance(event, Confirmed):
            react(connection, event, server=server)
    assert connection.closed


AMQP091_FUZZ_TARGETS = [
    FuzzTarget(
        f"amqp091-{'server' if server else 'client'}",
        client_stream() if server else server_stream(),
        partial(read_damaged, server=server),
        partial(read_undamaged, server=server),
        bytes((0, 1, 2, 3, 8, 10, 20, 50, 60, 80, 0x7F, 0x80, 0xCE, 0xFF, *b"FASxtVlIdDT")),
        overwrite_length,
    )
    for server in (False, True)
]
