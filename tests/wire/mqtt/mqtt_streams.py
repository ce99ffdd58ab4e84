"""MQTT bytes composed by hand from the specification, and the events they must produce.

Nothing here encodes with the codec under test: lengths, texts and flags follow the printed layouts.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.mqtt.connection import Connection
from crescendo.wire.mqtt.events import Acknowledged, Deliveries, Event
from crescendo.wire.mqtt.packets import Connect
from stream_feed import events_of

# -- writing ---------------------------------------------------------------------------------------------------------


def packet(first: int, body: bytes) -> bytes:
    length, digits = len(body), b""
    while True:
        length, digit = divmod(length, 128)
        digits += bytes((digit + (128 if length else 0),))
        if not length:
            return bytes((first,)) + digits + body


def text(value: str) -> bytes:
    return struct.pack(">H", len(value.encode())) + value.encode()


def publish(
    topic: str,
    body: bytes,
    *,
    qos: int = 0,
    number: int = 0,
    retain: bool = False,
    dup: bool = False,
    extra: bytes = b"",
) -> bytes:
    """`extra` goes between identifier and payload: in MQTT 5 the properties with their length."""
    first = 0x30 + 8 * dup + 2 * qos + retain
    return packet(first, text(topic) + (struct.pack(">H", number) if qos else b"") + extra + body)


def ack(kind: int, number: int, rest: bytes = b"") -> bytes:
    return packet(kind * 16 + (2 if kind == 6 else 0), struct.pack(">H", number) + rest)


PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
CONNACK_3 = b"\x20\x02\x00\x00"
CONNACK_5 = b"\x20\x03\x00\x00\x00"
CONNECT_3 = packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x0a\x00\x01c")
CONNECT_5 = packet(0x10, b"\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x01c")
CONNACKS = {4: CONNACK_3, 5: CONNACK_5}
CONNECTS = {4: CONNECT_3, 5: CONNECT_5}


# -- scripts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """One way to write a message."""

    topic: str = "perf"
    qos: int = 0
    retain: bool = False
    dup: bool = False
    extra: bytes = b""


@dataclass
class Script:
    """A growing stream, with the messages and acknowledgements it must yield."""

    version: int
    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)
    written: int = 0
    number: int = 1

    def message(self, shape: Shape, size: int) -> None:
        body = (self.written.to_bytes(4, "big") * (size // 4 + 1))[:size]
        number = self.number if shape.qos else 0
        extra = (shape.extra or b"\x00") if self.version == 5 else b""
        self.octets += publish(
            shape.topic, body, qos=shape.qos, number=number, retain=shape.retain, dup=shape.dup and shape.qos > 0,
            extra=extra,
        )  # fmt: skip
        self.expected.append(
            ("message", shape.topic, shape.qos, shape.retain, shape.dup and shape.qos > 0, number, body)
        )  # fmt: skip
        self.written += 1
        if shape.qos:
            self.number = self.number % 65_535 + 1


# A message expiry of 5 s; a user property; both.
EXTRAS = [b"", b"\x05\x02\x00\x00\x00\x05", b"\x09\x26\x00\x01k\x00\x03val", b"\x05\x02\x00\x00\x00\x07"]
shapes = st.builds(
    Shape,
    topic=st.sampled_from(["perf", "p", "perf/größe", "x" * 130]),
    qos=st.sampled_from([0, 1, 2]),
    retain=st.booleans(),
    dup=st.sampled_from([False, False, False, True]),
    extra=st.sampled_from(EXTRAS),
)
plain = st.builds(Shape, qos=st.integers(0, 2))
sizes = st.sampled_from([0, 1, 3, 7, 8, 32, 40, 120, 127, 256, 300])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Runs of messages, single messages, acknowledgements of a client's messages, and ping responses."""
    version = draw(st.sampled_from([4, 5]))
    script = Script(version, number=draw(st.sampled_from([1, 250, 65_520])))
    waiting = draw(st.permutations(range(40)))  # the client's messages, in the order of their acknowledgements
    if draw(st.booleans()):
        waiting = sorted(waiting)
    for _ in range(draw(st.integers(1, 8))):
        shape = draw(plain | shapes)
        match draw(st.sampled_from(["run", "run", "run", "mixed", "acks", "acks", "pong"])):
            case "run":
                size = draw(sizes)
                for _ in range(draw(st.integers(1, 40))):
                    script.message(shape, size)
            case "mixed":
                for size in draw(st.lists(sizes, max_size=6)):
                    script.message(draw(shapes), size)
            case "acks":
                rests = [b"", b"\x00", b"\x10", b"\x00\x00", b"\x97"] if version == 5 else [b""]
                rest = draw(st.sampled_from(rests))
                count = draw(st.integers(1, 20))
                done, waiting = waiting[:count], waiting[count:]
                for number in done:
                    script.octets += ack(PUBACK, number + 1, rest)
                    script.expected.append(("acknowledged", number, rest[0] if rest else 0))
            case "pong":
                script.octets += PINGRESP
    return script


# -- reading ---------------------------------------------------------------------------------------------------------


def client_of(version: int, *, batching: bool = True, unacknowledged: int = 0) -> Connection:
    """A connected client with this many unacknowledged messages of QoS 1 in flight."""
    connection = Connection(Connect("c", version), batching=batching)
    list(events_of(connection, CONNACKS[version]))
    for _ in range(unacknowledged):
        connection.publish_one("t", b"", qos=1)
    connection.outgoing.clear()
    return connection


def listen(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    """One entry per received message or acknowledgement; messages are acknowledged as they arrive."""
    entries: list[tuple[Any, ...]] = []
    for event in events_of(connection, data, cuts):
        entries += flattened(event)
        if isinstance(event, Deliveries):
            connection.acknowledge(event.ids, event.qos)
    return entries


def flattened(event: Event) -> list[tuple[Any, ...]]:
    if isinstance(event, Deliveries):
        return [
            ("message", event.topic, event.qos, event.retain, event.redelivered, number, body.tobytes())
            for number, body in zip(event.ids.tolist(), event.bodies, strict=True)
        ]
    if isinstance(event, Acknowledged):
        return [
            ("acknowledged", number, event.code) for first, last in event.ranges for number in range(first, last + 1)
        ]
    return [(type(event).__name__, *event)]
