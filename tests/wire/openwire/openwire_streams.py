"""Which bytes might an OpenWire broker send, and what do they mean?

Frames are composed here by hand from the specification, so that neither the scalar codec nor the batch path checks
itself. A script is a stream of bytes together with the events that it must yield in any chunking.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.openwire.connection import Connection
from crescendo.wire.openwire.events import Closed, Completed, Connected, Deliveries, Event, Refused, Released
from crescendo.wire.responses import Rejected, Responses
from stream_feed import events_of, take_outgoing

NAME = "c0ffee"  # of our connection
NO, YES = b"\0", b"\1"


def utf(text: bytes | str) -> bytes:
    octets = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(octets)) + octets


def frame(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def command(code: int, command_id: int, answered: bool, rest: bytes = b"") -> bytes:
    return frame(struct.pack(">Bi?", code, command_id, answered) + rest)


def wire_format(version: int = 12, **terms: int) -> bytes:
    entries = b"".join(utf(name) + b"\x06" + struct.pack(">q", value) for name, value in terms.items())
    properties = struct.pack(">i", len(terms) + 1) + entries + utf("ProviderName") + b"\x09" + utf("Broker")
    return frame(b"\x01ActiveMQ" + struct.pack(">i", version) + YES + struct.pack(">i", len(properties)) + properties)


def response(number: int, command_id: int = 0) -> bytes:
    return command(30, command_id, False, struct.pack(">i", number))


def exception_response(number: int, text: str) -> bytes:
    return command(31, 0, False, struct.pack(">i", number) + YES + YES + utf("java.lang.Oops") + YES + utf(text))


def producer_id(name: str, number: int = 1) -> bytes:
    return YES + b"\x7b" + YES + utf(name) + struct.pack(">qq", number, 1)


def consumer_id(number: int = 1) -> bytes:
    return YES + b"\x7a" + YES + utf(NAME) + struct.pack(">qq", 1, number)


def destination(name: str, code: int = 100) -> bytes:
    return YES + bytes((code,)) + YES + utf(name)


KEEP_ALIVE = command(10, 0, False)
BROKER_INFO = command(
    2, 0, False,
    YES + b"\x7c" + YES + utf("b1") + YES + utf("tcp://x") + NO + YES + utf("broker") + NO * 3
    + NO * 2 + bytes(8) + NO + NO,
)  # fmt: skip
ACCEPTED = wire_format() + BROKER_INFO + response(-1)


@dataclass(frozen=True)
class Shape:
    """One way in which brokers dispatch messages."""

    code: int = 24
    queue: str = "q"
    sender: str = "5e4de5"
    text_view: str | None = None
    redeliveries: int = 0
    persistent: bool = False
    priority: int = 4
    properties: bytes | None = None
    compressed: bool = False
    consumer: int = 1
    data_structure: bytes = NO

    def message_id(self, number: int) -> bytes:
        view = NO if self.text_view is None else YES + utf(f"{self.text_view}{number % 10}")
        return YES + b"\x6e" + view + producer_id(self.sender) + struct.pack(">qq", number + 1, number * 7)

    def structure(self, number: int, body: bytes | None) -> bytes:
        """The message itself."""
        if self.code == 28 and body is not None and not self.compressed:
            content = YES + struct.pack(">ii", len(body) + 4, len(body)) + body
        else:
            content = NO if body is None else YES + struct.pack(">i", len(body)) + body
        properties = NO if self.properties is None else YES + struct.pack(">i", len(self.properties)) + self.properties
        return (
            struct.pack(">Bi?", self.code, number, True)
            + producer_id(self.sender)
            + destination(self.queue)
            + NO + NO
            + self.message_id(number)
            + NO + NO + struct.pack(">i", 0) + NO
            + struct.pack(">?qb", self.persistent, 0, self.priority)
            + NO + struct.pack(">q", 1_700_000_000_000 + number) + NO
            + content
            + properties
            + self.data_structure + NO
            + struct.pack(">?i", self.compressed, self.redeliveries)
            + NO + bytes(8) + NO + NO + NO + NO
            + struct.pack(">qq", 1_700_000_000_000 + number, 1_700_000_000_001 + number)
            + NO
        )  # fmt: skip

    def message(self, number: int, body: bytes | None) -> tuple[bytes, tuple[Any, ...]]:
        """Its dispatch, and what that means."""
        dispatch = consumer_id(self.consumer) + destination(self.queue) + YES + self.structure(number, body)
        meaning = ("message", self.consumer, self.message_id(number), self.redeliveries > 0, body or b"")
        return command(21, 0, False, dispatch + struct.pack(">i", self.redeliveries)), meaning


def client_of(version: int = 12, *, batching: bool = True, **options: Any) -> Connection:
    """A connected client; ids of commands go on with -2."""
    client = Connection(NAME, batching=batching, version=version, **options)
    greeting = wire_format(12) + response(-1)
    assert [type(event) for event in events_of(client, greeting)] == [Connected]
    take_outgoing(client)
    return client


def flattened(event: Event) -> Iterator[tuple[Any, ...]]:
    """An event as values, one per message, so that batches and single messages compare equal."""
    match event:
        case Deliveries(consumer=consumer, redelivered=redelivered):
            assert len(event.ids) == len(event.bodies)
            for name, body in zip(event.ids, event.bodies, strict=True):
                yield ("message", consumer, name.tobytes(), redelivered, body.tobytes())
        case Responses(numbers=numbers):
            for number in numbers.tolist():
                yield ("response", number)
        case Completed(command_id=number):
            yield ("completed", number)
        case Rejected(number=number, reason=reason) | Refused(command_id=number, reason=reason):
            yield (type(event).__name__.lower(), number, reason)
        case Released(producer=number, size_bytes=size):
            yield ("released", number, size)
        case Closed(reason=reason):
            yield ("closed", reason)
        case Connected(agreement=agreement):
            yield ("connected", agreement.version)


def listen(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    return [entry for event in events_of(connection, data, cuts) for entry in flattened(event)]


@dataclass
class Script:
    """A stream of frames and what they mean."""

    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)

    def message(self, shape: Shape, number: int, body: bytes | None) -> None:
        octets, meaning = shape.message(number, body)
        self.octets += octets
        self.expected.append(meaning)

    def response(self, number: int, command_id: int = 0) -> None:
        self.octets += response(number, command_id)
        self.expected.append(("response", number) if number >= 0 else ("completed", number))

    def rejection(self, number: int) -> None:
        self.octets += exception_response(number, "the queue\nis full")
        self.expected.append(("rejected" if number >= 0 else "refused", number, "the queue is full"))


ODD = ((Shape(redeliveries=1), bytes(256)),)
"""What does not belong to a run of ordinary messages."""


def varied(number: int) -> Shape:
    """A message of another sender, priority and property than the one before."""
    properties = b"\0\0\0\1\0\1a\6" + number.to_bytes(8, "big")
    return Shape(sender=f"s{number % 7:05d}", priority=number % 10, properties=properties)


def in_turn(number: int) -> Shape:
    """One of four kinds of messages."""
    return Shape(redeliveries=number % 2, consumer=1 + number // 2 % 2)


def answer_in_turn(script: Script, number: int) -> None:
    """One of two kinds of answers."""
    script.response(number if number % 2 else -number)


shapes = st.builds(
    Shape,
    code=st.sampled_from([24, 24, 24, 28, 23, 25]),
    queue=st.sampled_from(["q", "q", "ü"]),
    sender=st.sampled_from(["5e4de5", "0ther5", "longer-5e4de5"]),
    text_view=st.sampled_from([None, None, "ID:host-1-", ""]),
    redeliveries=st.sampled_from([0, 0, 0, 1, 7]),
    persistent=st.booleans(),
    priority=st.integers(0, 9),
    properties=st.sampled_from([None, b"", b"\0\0\0\1\0\1a\1\1", b"\xff" * 9]),
    compressed=st.sampled_from([False, False, False, True]),
    consumer=st.sampled_from([1, 1, 1, 2]),
    data_structure=st.sampled_from([NO, NO, NO, destination("x"), YES + Shape(sender="inner").structure(1, b"ab")]),
)
lengths = st.sampled_from([0, 1, 3, 8, 32, 33, 256])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Runs of one shape, broken by other shapes and sizes, responses, refusals and keep-alives."""
    script = Script()
    number = draw(st.sampled_from([0, 5, 2**31 - 20]))
    for _ in range(draw(st.integers(1, 5))):
        shape, length = draw(shapes), draw(lengths)
        filling = draw(st.sampled_from([b"\0", bytes(range(256)), b"\x15\0\0\0\x0a\x1e"]))
        for _ in range(draw(st.sampled_from([1, 2, 3, 40]))):
            script.message(shape, number % 2**31, (filling * (length // len(filling) + 1))[:length])
            number += draw(st.sampled_from([1, 1, 1, 7]))
            length = draw(st.sampled_from([length, length, length, length, length + 1, max(length - 3, 0)]))
        for count in range(draw(st.sampled_from([0, 0, 1, 25]))):
            script.response((number + count) % 2**31, draw(st.sampled_from([0, 0, count])))
        if draw(st.booleans()):
            script.response(-5)
            script.rejection(draw(st.sampled_from([3, -3])))
            script.octets += KEEP_ALIVE
    return script
