"""Can a broken or hostile peer do more than end its own connection?

Valid streams in both directions are damaged at random and read by a connection that reacts as the load does. Only
PeerError may come out, in bounded time, and a small stream may not make us speak or remember without end.
"""

import contextlib
import random
import time
import tracemalloc

import pytest
from mqtt_streams import (
    CONNACKS,
    CONNECTS,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Script,
    Shape,
    ack,
    events_of,
    packet,
    text,
)

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.connection import Connection
from crescendo.wire.mqtt.events import Connected, ConnectRequested, Deliveries, SubscribeRequested, UnsubscribeRequested
from crescendo.wire.mqtt.packets import Connect, Filter

FAST_MUTATIONS = 3_000
SOAK_MUTATIONS = 1_000_000
MUTATION_LIMIT_S = 2.0  # far more than any of them needs, far less than a loop without end


def messages(version: int) -> bytes:
    script = Script(version)
    for shape in (
        Shape(),
        Shape(qos=1),
        Shape(qos=2),
        Shape("a/b", 1, dup=True),
        Shape(extra=b"\x05\x02\x00\x00\x00\x05"),
    ):
        for size in (40, 40, 40, 40, 40, 7, 200):
            script.message(shape, size)
    return bytes(script.octets)


def server_stream(version: int) -> bytes:
    """What a server says to a client that has subscribed and published."""
    extra = b"\x00" if version == 5 else b""
    answers = packet(0x90, b"\x00\x01" + extra + b"\x01") + b"".join(ack(PUBACK, n) for n in range(2, 12))
    answers += b"".join(ack(PUBREC, n) for n in range(12, 18)) + b"".join(ack(PUBCOMP, n) for n in range(12, 18))
    releases = b"".join(ack(PUBREL, n) for n in range(8, 15))
    good_bye = b"\xe0\x07\x8b\x05\x1f\x00\x02no" if version == 5 else b""
    return CONNACKS[version] + answers + messages(version) + PINGRESP + releases + good_bye


def client_stream(version: int) -> bytes:
    """What a client says to a server."""
    extra = b"\x00" if version == 5 else b""
    subscribe = packet(0x82, b"\x00\x01" + extra + text("a/+") + b"\x01" + text("$share/g/t") + b"\x00")
    unsubscribe = packet(0xA2, b"\x00\x02" + extra + text("a/+"))
    return CONNECTS[version] + subscribe + messages(version) + PINGREQ + unsubscribe + ack(PUBREL, 9) + b"\xe0\x00"


STREAMS = [(server, version) for server in (False, True) for version in (4, 5)]
WHOLE = {pair: (client_stream if pair[0] else server_stream)(pair[1]) for pair in STREAMS}


def damaged(stream: bytes, dice: random.Random) -> bytes:
    octets = bytearray(stream)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        at = dice.randrange(len(octets))
        match dice.randrange(6):
            case 0:
                octets[at] ^= 1 << dice.randrange(8)
            case 1:
                octets[at] = dice.choice((0, 1, 2, 0x7F, 0x80, 0x30, 0x32, 0x34, 0x40, 0x62, 0xFF))
            case 2:
                del octets[at : at + dice.randrange(1, 9)]
            case 3:
                octets[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                end = at + dice.randrange(1, 200)
                octets[at:at] = octets[at:end] * dice.randrange(1, 4)
            case 5:
                octets[at : at + 2] = dice.randrange(65_536).to_bytes(2, "big")
        if not octets:
            octets += b"\x30"
    return bytes(octets)


def react(connection: Connection, stream: bytes, cuts: list[int]) -> int:
    """Live through a stream as client or server; how many messages came."""
    taken = 0
    for event in events_of(connection, stream, cuts):
        match event:
            case Connected():
                connection.subscribe([Filter("t", 1)])
                for qos in [1] * 10 + [2] * 6:
                    connection.publish_one("t", b"", qos=qos)
            case ConnectRequested():
                connection.accept()
            case SubscribeRequested(packet_id=packet_id, filters=filters):
                connection.grant(packet_id, (0,) * len(filters))
            case UnsubscribeRequested(packet_id=packet_id, filters=texts):
                connection.grant_end(packet_id, (0,) * len(texts))
            case Deliveries(ids=ids, qos=qos, bodies=bodies):
                assert bodies.nbytes <= len(stream)
                taken += len(ids)
                connection.acknowledge(ids, qos)
            case _:
                pass
    return taken


def endpoint(server: bool, version: int, *, batching: bool) -> Connection:
    return Connection(None if server else Connect("c", version), batching=batching)


def bombard(mutations: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(mutations):
        server, version = dice.choice(STREAMS)
        stream = damaged(WHOLE[server, version], dice)
        connection = endpoint(server, version, batching=dice.random() < 0.7)
        begun_s = time.monotonic()
        cuts = [dice.randrange(len(stream)) for _ in range(dice.choice((0, 0, 1, 5)))]
        with contextlib.suppress(PeerError):
            react(connection, stream, cuts)
        assert time.monotonic() - begun_s < MUTATION_LIMIT_S, stream.hex()
        spoken = sum(len(octets) for octets in connection.outgoing)
        assert spoken <= 4096 + 4 * len(stream), stream.hex()


@pytest.mark.parametrize(("server", "version"), STREAMS)
@pytest.mark.parametrize("batching", [True, False])
def test_the_undamaged_streams_are_understood_to_the_end(server: bool, version: int, batching: bool) -> None:
    connection = endpoint(server, version, batching=batching)
    assert react(connection, WHOLE[server, version], []) == 35
    assert connection.undecoded_bytes == 0


def test_damaged_streams_end_in_a_peer_error_at_worst() -> None:
    bombard(FAST_MUTATIONS, seed=1)


def test_damaged_streams_leave_no_memory_behind() -> None:
    bombard(50, seed=2)
    tracemalloc.start()
    try:
        bombard(50, seed=3)
        before, _ = tracemalloc.get_traced_memory()
        bombard(300, seed=4)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_damaged_streams_end_in_a_peer_error_at_worst() -> None:
    bombard(SOAK_MUTATIONS, seed=5)
