"""Streams of both MQTT versions in both directions, and connections that read them as the load does."""

import contextlib
import random
from functools import partial

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.connection import Connection
from crescendo.wire.mqtt.events import Connected, ConnectRequested, Deliveries, SubscribeRequested, UnsubscribeRequested
from crescendo.wire.mqtt.packets import Connect, Filter
from fuzzing import FuzzTarget, cuts_in
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
    packet,
    text,
)
from stream_feed import events_of


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
    """The packets of a server to a client that has subscribed and published."""
    extra = b"\x00" if version == 5 else b""
    answers = packet(0x90, b"\x00\x01" + extra + b"\x01") + b"".join(ack(PUBACK, n) for n in range(2, 12))
    answers += b"".join(ack(PUBREC, n) for n in range(12, 18)) + b"".join(ack(PUBCOMP, n) for n in range(12, 18))
    releases = b"".join(ack(PUBREL, n) for n in range(8, 15))
    disconnect = b"\xe0\x07\x8b\x05\x1f\x00\x02no" if version == 5 else b""
    return CONNACKS[version] + answers + messages(version) + PINGRESP + releases + disconnect


def client_stream(version: int) -> bytes:
    """The packets of a client to a server."""
    extra = b"\x00" if version == 5 else b""
    subscribe = packet(0x82, b"\x00\x01" + extra + text("a/+") + b"\x01" + text("$share/g/t") + b"\x00")
    unsubscribe = packet(0xA2, b"\x00\x02" + extra + text("a/+"))
    return CONNECTS[version] + subscribe + messages(version) + PINGREQ + unsubscribe + ack(PUBREL, 9) + b"\xe0\x00"


def react(connection: Connection, stream: bytes, cuts: list[int]) -> int:
    """Handle a stream as client or server; returns the number of messages."""
    received = 0
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
                connection.grant_unsubscribe(packet_id, (0,) * len(texts))
            case Deliveries(ids=ids, qos=qos, bodies=bodies):
                assert bodies.nbytes <= len(stream)
                received += len(ids)
                connection.acknowledge(ids, qos)
            case _:
                pass
    return received


def endpoint(server: bool, version: int, *, batching: bool) -> Connection:
    return Connection(None if server else Connect("c", version), batching=batching)


def survive(stream: bytes, dice: random.Random, *, server: bool, version: int) -> int:
    connection = endpoint(server, version, batching=dice.random() < 0.7)
    with contextlib.suppress(PeerError):  # ends this connection, and nothing else
        react(connection, stream, cuts_in(stream, dice))
    return sum(len(octets) for octets in connection.outgoing)


def read_to_the_end(whole: bytes, *, server: bool, version: int) -> None:
    for batching in (True, False):
        connection = endpoint(server, version, batching=batching)
        assert react(connection, whole, []) == 35
        assert connection.undecoded_bytes == 0


def overwrite_identifier(octets: bytearray, at: int, dice: random.Random) -> None:
    octets[at : at + 2] = dice.randrange(65_536).to_bytes(2, "big")


def victim_of(server: bool, version: int) -> FuzzTarget:
    whole = client_stream(version) if server else server_stream(version)
    return FuzzTarget(
        f"mqtt-{version}-{'server' if server else 'client'}",
        whole,
        partial(survive, server=server, version=version),
        partial(read_to_the_end, whole, server=server, version=version),
        bytes((0, 1, 2, 0x7F, 0x80, 0x30, 0x32, 0x34, 0x40, 0x62, 0xFF)),
        overwrite_identifier,
        allowance=4,
    )


MQTT_FUZZ_TARGETS = [victim_of(server, version) for server in (False, True) for version in (4, 5)]
