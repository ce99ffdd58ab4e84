"""Which bytes can a server send, and which events must follow?

Frames are written by hand from the specification, so that neither the scalar codec nor the batch path is tested against
itself. A script is a stream of bytes together with the events that it must yield, however it is split into reads.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.events import (
    ChannelOpened,
    Confirmed,
    Deliveries,
    Event,
    MethodReceived,
    Opened,
    Returned,
)
from crescendo.wire.amqp091.methods import BasicPublish
from stream_feed import events_of

HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = bytes.fromhex("08 0000 00000000 ce")
CHANNELS = (1, 2)
CONFIRMABLE = 1_000_000


# -- frames, by hand -------------------------------------------------------------------------------------------------


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def short(text: str) -> bytes:
    return bytes((len(text.encode()),)) + text.encode()


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def start(mechanisms: str = "PLAIN AMQPLAIN", version: bytes = b"\x00\x09") -> bytes:
    properties = short("product") + b"S" + long(b"by hand")
    return method(0, 10, 10, version + long(properties) + long(mechanisms.encode()) + long(b"en_US"))


def tune(channel_max: int = 100, frame_max: int = 131_072, heartbeat_s: int = 60) -> bytes:
    return method(0, 10, 30, struct.pack(">HIH", channel_max, frame_max, heartbeat_s))


def open_ok() -> bytes:
    return method(0, 10, 41, b"\x00")


def close(code: int, text: str, channel: int = 0) -> bytes:
    numbers = (20, 40) if channel else (10, 50)
    return method(channel, *numbers, struct.pack(">H", code) + short(text) + b"\x00\x00\x00\x00")


def channel_open_ok(channel: int) -> bytes:
    return method(channel, 20, 11, long(b""))


def prologue(channels: Iterable[int] = CHANNELS, **tuning: int) -> bytes:
    """A server's half of the handshake, and the answers to our channels."""
    return start() + tune(**tuning) + open_ok() + b"".join(map(channel_open_ok, channels))


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return method(channel, 60, 80, struct.pack(">QB", tag, multiple))


def nack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return method(channel, 60, 120, struct.pack(">QB", tag, multiple))


@dataclass(frozen=True)
class Shape:
    """What similar messages have in common."""

    consumer: str = "c"
    redelivered: bool = False
    routing_key: str = "perf"
    properties: bytes = b"\x00\x00"

    def deliver(self, channel: int, tag: int) -> bytes:
        arguments = short(self.consumer) + struct.pack(">QB", tag, self.redelivered) + short("") + short(
            self.routing_key
        )  # fmt: skip
        return method(channel, 60, 60, arguments)

    def header(self, channel: int, body_length: int) -> bytes:
        return frame(2, channel, struct.pack(">HHQ", 60, 0, body_length) + self.properties)


PERSISTENT = b"\x10\x00\x02"
WITH_HEADERS = b"\x28\x00" + long(short("x-death") + b"I\x00\x00\x00\x07") + b"\x05"  # headers and priority
SHAPES = (Shape(), Shape(redelivered=True), Shape(properties=PERSISTENT), Shape("tag-7", properties=WITH_HEADERS))


@dataclass
class Script:
    """A growing stream and the events that it must yield."""

    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)
    tags: dict[int, Iterator[int]] = field(default_factory=dict)

    def _tag(self, channel: int) -> int:
        return next(self.tags.setdefault(channel, itertools.count(1)))

    def message(self, shape: Shape, channel: int, size: int) -> None:
        self.fragmented(shape, channel, size, max(size, 1))

    def fragmented(self, shape: Shape, channel: int, size: int, fragment_bytes: int, between: bytes = b"") -> None:
        """A message whose body is in several frames, optionally with other bytes between the frames."""
        tag = self._tag(channel)
        body = (tag.to_bytes(8, "big") * (size // 8 + 1))[:size]
        frames = [shape.deliver(channel, tag), shape.header(channel, size)]
        frames += [frame(3, channel, body[at : at + fragment_bytes]) for at in range(0, size, fragment_bytes)]
        self.octets += between.join(frames)
        self.expected.append(("message", channel, tag, body, shape.redelivered, shape.routing_key))

    def returned(self, channel: int, body: bytes) -> None:
        arguments = struct.pack(">H", 312) + short("NO_ROUTE") + short("") + short("nowhere")
        self.octets += method(channel, 60, 50, arguments) + Shape().header(channel, len(body)) + frame(3, channel, body)
        self.expected.append(("returned", channel, 312, body))

    def add_ignored(self, octets: bytes) -> None:
        self.octets += octets


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Runs of equal messages, interrupted by every other kind of frame."""
    script = Script()
    for _ in range(draw(st.integers(1, 6))):
        shape = draw(st.sampled_from(SHAPES))
        channel = draw(st.sampled_from(CHANNELS))
        size = draw(st.sampled_from([0, 1, 7, 8, 32, 100, 256]))
        match draw(st.integers(0, 5)):
            case 0 | 1 | 2:
                for _ in range(draw(st.integers(1, 20))):
                    script.message(shape, channel, size)
            case 3:
                script.fragmented(
                    shape, channel, size, draw(st.sampled_from([1, 50])), draw(st.sampled_from([b"", HEARTBEAT]))
                )
            case 4:
                script.returned(channel, bytes(size or 1))
            case 5:
                script.add_ignored(HEARTBEAT)
    return script


# -- reading ---------------------------------------------------------------------------------------------------------


def flattened(event: Event) -> list[tuple[Any, ...]]:
    """One entry per message, copied from the buffer, so that batches compare with single messages."""
    match event:
        case Deliveries(channel=channel, tags=tags, bodies=bodies, method=method):
            return [
                ("message", channel, int(tag), body.tobytes(), event.redelivered, method.routing_key)
                for tag, body in zip(tags, bodies, strict=True)
            ]
        case Returned(channel=channel, method=method, body=body):
            return [("returned", channel, method.reply_code, body)]
        case Confirmed(channel=channel, ranges=ranges, accepted=accepted):
            return [("confirmed", channel, n, accepted) for first, last in ranges for n in range(first, last + 1)]
        case MethodReceived(channel=channel, method=method):
            return [("method", channel, method)]
        case _:
            return []


def new_client(*, batching: bool = True, published: int = CONFIRMABLE) -> Connection:
    """A client that opens its channels at once, with confirms and many messages published on the first."""
    connection = Connection(batching=batching)
    for number in CHANNELS:
        connection.open_channel(number)
    connection.select_confirms(CHANNELS[0])
    confirms = connection.channels[CHANNELS[0]].confirms
    assert confirms is not None
    confirms.published = published
    return connection


def receive(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    received = []
    for event in events_of(connection, data, cuts):
        if not isinstance(event, Opened | ChannelOpened):
            received += flattened(event)
    return received


PUBLISH = BasicPublish(routing_key="perf")
