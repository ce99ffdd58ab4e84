"""Can a broken or hostile peer do more than end its own connection?

Valid streams in both directions are damaged at random and read by a connection that reacts as the load does. Only
PeerError and Refused may come out, in bounded time, and a small stream may not make us speak or remember without end.
"""

import contextlib
import random
import time
import tracemalloc

import pytest
from amqp091_streams import (
    HEARTBEAT,
    PUBLISH,
    SHAPES,
    Script,
    ack,
    client_of,
    close,
    events_of,
    method,
    nack,
    prologue,
    short,
    spoken,
)

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.batch import PublishBatch
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.events import ChannelClosed, ChannelOpened, Confirmed, Deliveries, Opened, Returned, Said
from crescendo.wire.amqp091.methods import BasicAck, QueueDeclare, QueueDeclareOk

FAST_MUTATIONS = 3_000
SOAK_MUTATIONS = 1_000_000
MUTATION_LIMIT_S = 2.0  # far more than any of them needs, far less than a loop without end


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
    client.say(1, QueueDeclare(queue="q", arguments={"x-max-length": 5, "x-list": [1, None, {"deep": 2.5}]}))
    client.select_confirms(1)
    batch = PublishBatch(exchange="", routing_key="q", body_length=40)
    client.publish_batch(batch, 20)
    client.publish(1, PUBLISH, bytes(300))
    client.say(1, BasicAck(3, multiple=True))
    client.heartbeat()
    client.close_channel(1)
    client.close()
    return said + spoken(client)


def damaged(stream: bytes, dice: random.Random) -> bytes:
    octets = bytearray(stream)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        at = dice.randrange(len(octets))
        match dice.randrange(7):
            case 0:
                octets[at] ^= 1 << dice.randrange(8)
            case 1:
                octets[at] = dice.choice((0, 1, 2, 3, 8, 10, 20, 50, 60, 80, 0x7F, 0x80, 0xCE, 0xFF, *b"FASxtVlIdDT"))
            case 2:
                del octets[at : at + dice.randrange(1, 9)]
            case 3:
                octets[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                octets[at : at + 4] = dice.choice((0, 7, 8, 9, 255, 65_536, 2**31, 2**32 - 1)).to_bytes(4, "big")
            case 5:
                start = dice.randrange(len(octets))
                octets[at:at] = octets[start : start + dice.randrange(1, 200)]
            case 6:
                del octets[at:]
        if not octets:
            break
    return bytes(octets)


def survive(stream: bytes, dice: random.Random, *, server: bool) -> int:
    """Read the stream as we would in earnest; how many bytes it made us say."""
    batching = dice.random() < 0.8
    connection = Connection(server=True, batching=batching) if server else client_of(batching=batching, published=100)
    cuts = [dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 1, 3, 10)))]
    said = 0
    with contextlib.suppress(PeerError):  # the end of this connection, and of nothing else
        for event in events_of(connection, stream, cuts):
            react(connection, event, server=server)
            said += len(spoken(connection))
    return said + len(spoken(connection))


def react(connection: Connection, event: object, *, server: bool) -> None:
    match event:
        case Deliveries():
            assert event.bodies.sum() >= 0  # every byte that is promised is there
            assert len(event.tags) == len(event.bodies) > 0
            connection.say(event.channel, BasicAck(int(event.tags[-1]), multiple=True))
        case Confirmed(stretches=stretches):
            assert all(1 <= first <= last <= 100 for first, last in stretches)
        case Returned(body=body):
            assert isinstance(body, bytes)
        case ChannelClosed(channel=channel):
            assert channel not in connection.channels
        case ChannelOpened(channel=channel):
            assert connection.publishable(channel) or connection.blocked is not None
        case Said(channel=channel, method=QueueDeclare(queue=queue)) if server:
            connection.say(channel, QueueDeclareOk(queue, 0, 0))
        case Opened(properties=properties):
            assert isinstance(properties, dict)


def run(mutations: int, *, server: bool) -> None:
    whole = client_stream() if server else server_stream()
    dice = random.Random(91 + server)
    for number in range(mutations):
        stream = damaged(whole, dice)
        start_s = time.monotonic()
        said = survive(stream, dice, server=server)
        assert said <= 4096 + 64 * len(stream), f"mutation {number} made us say {said} bytes"
        assert time.monotonic() - start_s < MUTATION_LIMIT_S, f"mutation {number} took too long"


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_the_undamaged_streams_are_read_to_their_end(server: bool) -> None:
    connection = Connection(server=True) if server else client_of()
    for event in events_of(connection, client_stream() if server else server_stream()):
        react(connection, event, server=server) if not isinstance(event, Confirmed) else None
    assert connection.closed


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_damage_is_only_ever_the_peers_fault(server: bool) -> None:
    run(FAST_MUTATIONS // 2, server=server)


def test_damage_leaves_nothing_behind() -> None:
    run(50, server=False)
    tracemalloc.start()
    try:
        run(50, server=False)
        before, _ = tracemalloc.get_traced_memory()
        run(200, server=False)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_a_million_kinds_of_damage_are_only_ever_the_peers_fault(server: bool) -> None:
    run(SOAK_MUTATIONS // 2, server=server)
