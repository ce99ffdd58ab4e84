"""Which bytes might an Artemis broker send over Core, and what do they mean?

Frames are composed here by hand from the sources of the broker, so that neither the scalar codec nor the batch path
checks itself. A script is a stream of bytes together with the events that it must yield in any chunking.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.artemis_core.connection import Connection
from crescendo.wire.artemis_core.events import (
    Closed,
    Completed,
    Connected,
    CreditRefused,
    Deliveries,
    Event,
    Granted,
    Refused,
)
from crescendo.wire.responses import Rejected, Responses
from stream_feed import events_of, take_outgoing

NAME = "c0ffee"  # of our session
NO, YES = b"\0", b"\1"
SESSION = 10


def name(text: str) -> bytes:
    octets = text.encode("utf-16-le")
    return struct.pack(">i", len(octets)) + octets


def string(text: str) -> bytes:
    """A text of less than 9 characters, of less than 4095, or longer."""
    if len(text) < 9:
        return struct.pack(">i", len(text)) + text.encode("utf-16-be")
    if len(text) < 4095:
        return struct.pack(">iH", len(text), len(text.encode())) + text.encode()
    return struct.pack(">i", len(text)) + name(text)


def frame(code: int, rest: bytes = b"", channel: int = SESSION) -> bytes:
    return struct.pack(">ibq", 9 + len(rest), code, channel) + rest


def response(number: int) -> bytes:
    return frame(21, struct.pack(">q", number))


def exception(code: int, text: str, number: int | None = None, channel: int = SESSION) -> bytes:
    correlation = b"" if number is None else struct.pack(">q", number)
    return frame(20, struct.pack(">i", code) + YES + string(text) + correlation, channel)


def queue_info(*, exists: bool = True, creates: bool = True, address: str = "q", selector: str | None = None) -> bytes:
    text = NO if selector is None else YES + name(selector)
    counts = struct.pack(">iq", 2, 77)
    names = YES + name(address) + YES + name("q")
    later = struct.pack(">???bi", creates, True, False, 1, -1) + NO * 9
    return frame(-14, struct.pack(">???", exists, True, False) + counts + text + names + later)


def large_message(body_bytes: int, consumer: int = 1, deliveries: int = 1, code: int = 4) -> bytes:
    return frame(76, struct.pack(">qiq", consumer, deliveries, body_bytes) + Shape(code=code).headers(9))


def part(octets: bytes, *, continues: bool, consumer: int = 1) -> bytes:
    return frame(77, struct.pack(">i", len(octets)) + octets + struct.pack(">?q", continues, consumer))


PING = frame(10, struct.pack(">q", 20_000), 0)
ACCEPTED = PING + frame(31, struct.pack(">i", 136), 1)
CREDITS = frame(80, struct.pack(">i", 65_536) + name("q"))


@dataclass(frozen=True)
class Shape:
    """One way in which brokers deliver messages."""

    code: int = 4
    address: str | None = "q"
    user_id: bytes | None = None
    deliveries: int = 1
    durable: bool = False
    priority: int = 4
    properties: bytes = NO
    consumer: int = 1

    def headers(self, number: int) -> bytes:
        return (
            struct.pack(">q", number)
            + (NO if self.address is None else YES + name(self.address))
            + (NO if self.user_id is None else YES + self.user_id)
            + struct.pack(">b?qqb", self.code, self.durable, 0, 1_700_000_000_000 + number, self.priority)
            + self.properties
        )

    def message(self, number: int, body: bytes) -> tuple[bytes, tuple[Any, ...]]:
        """Its delivery, and what that means."""
        found = body
        if self.code == 3:
            text = body.hex()
            body, found = YES + name(text), text.encode()
        octets = struct.pack(">i", 13 + len(body)) + body + self.headers(number)
        meaning = ("message", self.consumer, number, self.deliveries > 1, found)
        return frame(75, octets + struct.pack(">qi", self.consumer, self.deliveries)), meaning


def client_of(version: int = 136, *, batching: bool = True, **options: Any) -> Connection:
    """A connected client; its first request has the number 1."""
    client = Connection(NAME, batching=batching, version=version, **options)
    assert [type(event) for event in events_of(client, ACCEPTED)] == [Connected]
    take_outgoing(client)
    return client


def flattened(event: Event) -> Iterator[tuple[Any, ...]]:
    """An event as values, one per message, so that batches and single messages compare equal."""
    match event:
        case Deliveries(consumer=consumer, redelivered=redelivered):
            assert len(event.ids) == len(event.bodies)
            for number, body in zip(event.ids, event.bodies, strict=True):
                yield ("message", consumer, int.from_bytes(number.tobytes(), "big"), redelivered, body.tobytes())
        case Responses(numbers=numbers):
            for number in numbers.tolist():
                yield ("response", number)
        case Completed(request=number):
            yield ("completed", number)
        case Rejected(number=number, reason=reason):
            yield ("rejected", number, reason)
        case Refused(request=number, reason=reason, code=code):
            yield ("refused", number, reason, code)
        case Granted(credits=size) | CreditRefused(credits=size):
            yield (type(event).__name__.lower(), size)
        case Closed(reason=reason):
            yield ("closed", reason)
        case Connected(version=version):
            yield ("connected", version)


def listen(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    return [entry for event in events_of(connection, data, cuts) for entry in flattened(event)]


@dataclass
class Script:
    """A stream of frames and what they mean."""

    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)

    def message(self, shape: Shape, number: int, body: bytes) -> None:
        octets, meaning = shape.message(number, body)
        self.octets += octets
        self.expected.append(meaning)

    def large(self, body: bytes, pieces: int) -> None:
        self.octets += large_message(len(body))
        size = -(-len(body) // pieces)
        for piece in range(pieces):
            self.octets += part(body[piece * size : (piece + 1) * size], continues=piece < pieces - 1)
        self.expected.append(("message", 1, 9, False, body))

    def response(self, number: int) -> None:
        self.octets += response(number)
        self.expected.append(("response", number))

    def rejection(self, number: int) -> None:
        self.octets += exception(210, "the queue\nis full", number)
        self.expected.append(("rejected", number, "the queue is full"))

    def credits(self) -> None:
        self.octets += CREDITS + PING
        self.expected.append(("granted", 65_536))


ODD = ((Shape(deliveries=2), bytes(256)), (Shape(code=3), bytes(25)))
"""What does not belong to a run of ordinary messages."""


def varied(number: int) -> Shape:
    """A message of another user, priority and property than the one before."""
    properties = b"\1\0\0\0\1\0\0\0\2a\0\7" + number.to_bytes(8, "big")
    return Shape(user_id=number.to_bytes(16, "big"), priority=number % 10, properties=properties)


def in_turn(number: int) -> Shape:
    """One of four kinds of messages."""
    return Shape(deliveries=1 + number % 2, consumer=1 + number // 2 % 2)


def answer_in_turn(script: Script, number: int) -> None:
    """One of two kinds of answers."""
    if number % 2:
        script.response(number)
    else:
        script.credits()


shapes = st.builds(
    Shape,
    code=st.sampled_from([4, 4, 4, 3, 0, 5]),
    address=st.sampled_from(["q", "q", "ü", None]),
    user_id=st.sampled_from([None, None, bytes(16), bytes(range(16))]),
    deliveries=st.sampled_from([1, 1, 1, 2, 7]),
    durable=st.booleans(),
    priority=st.integers(0, 9),
    properties=st.sampled_from([NO, NO, YES + struct.pack(">i", 1) + name("a") + b"\3\7", b"\xff" * 9]),
    consumer=st.sampled_from([1, 1, 1, 2]),
)
lengths = st.sampled_from([0, 1, 3, 8, 32, 33, 256])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Runs of one shape, broken by other shapes and sizes, large messages, responses, refusals, credits and pings."""
    script = Script()
    number = draw(st.sampled_from([0, 5, 2**31 - 20, 2**40]))
    for _ in range(draw(st.integers(1, 5))):
        shape, length = draw(shapes), draw(lengths)
        filling = draw(st.sampled_from([b"\0", bytes(range(256)), b"\x15\0\0\0\x4b\x0a"]))
        for _ in range(draw(st.sampled_from([1, 2, 3, 40]))):
            script.message(shape, number, (filling * (length // len(filling) + 1))[:length])
            number += draw(st.sampled_from([1, 1, 1, 7]))
            length = draw(st.sampled_from([length, length, length, length, length + 1, max(length - 3, 0)]))
        for count in range(draw(st.sampled_from([0, 0, 1, 25]))):
            script.response(number + count)
        if draw(st.booleans()):
            script.rejection(draw(st.sampled_from([0, 3])))
            script.credits()
            script.large(filling * 3, draw(st.integers(1, 3)))
    return script
