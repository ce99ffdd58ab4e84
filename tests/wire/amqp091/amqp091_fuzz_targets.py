"""Streams of AMQP 0-9-1 in both directions, and connections that read them as the load does."""

import random
from functools import partial

from amqp091_streams import HEARTBEAT, PUBLISH, SHAPES, Script, ack, client_of, close, method, nack, prologue, short
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
from fuzzing import Victim, live_through, overwrite_length
from stream_feed import events_of, spoken


def server_stream() -> bytes:
    """What a server says to a client that publishes with confirms and receives."""
    script = Script()
    for shape in SHAPES:
        for _ in range(6):
            script.message(shape, 1, 40)
        script.pieces(shape, 2, 120, 50, HEARTBEAT)
    script.returned(1, bytes(40))
    confirms = b"".join(ack(1, tag) for tag in range(1, 8)) + nack(1, 9) + ack(1, 20, multiple=True)
    blocked = method(0, 10, 60, short("memory")) + method(0, 10, 61) + method(1, 20, 20, b"\0")
    ends = close(404, "NOT_FOUND", channel=2) + close(320, "CONNECTION_FORCED")
    return prologue() + bytes(script.octets) + confirms + blocked + HEARTBEAT + ends


def client_stream() -> bytes:
    """What a client says to a server to which it publishes."""
    client = Connection()
    said = spoken(client)
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
    return said + spoken(client)


def survive(stream: bytes, dice: random.Random, *, server: bool) -> int:
    batching = dice.random() < 0.8
    connection = Connection(server=True, batching=batching) if server else client_of(batching=batching, published=100)
    return live_through(connection, stream, dice, partial(react, server=server))


def react(connection: Connection, event: object, *, server: bool) -> None:
    match event:
        case Deliveries():
            assert event.bodies.sum() >= 0  # every byte that is promised is there
            assert len(event.tags) == len(event.bodies) > 0
            connection.send(event.channel, BasicAck(int(event.tags[-1]), multiple=True))
        case Confirmed(stretches=stretches):
            assert all(1 <= first <= last <= 100 for first, last in stretches)
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


def read_to_the_end(*, server: bool) -> None:
    connection = Connection(server=True) if server else client_of()
    for event in events_of(connection, client_stream() if server else server_stream()):
        if not isinstance(event, Confirmed):
            react(connection, event, server=server)
    assert connection.closed


AMQP091_VICTIMS = [
    Victim(
        f"amqp091-{'server' if server else 'client'}",
        client_stream() if server else server_stream(),
        partial(survive, server=server),
        partial(read_to_the_end, server=server),
        bytes((0, 1, 2, 3, 8, 10, 20, 50, 60, 80, 0x7F, 0x80, 0xCE, 0xFF, *b"FASxtVlIdDT")),
        overwrite_length,
    )
    for server in (False, True)
]
