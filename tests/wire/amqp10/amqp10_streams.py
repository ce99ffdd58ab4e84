"""Which bytes can a server send, and which events must follow?

Frames are written by hand from the specification, so that neither the scalar codec nor the batch path is tested against
itself. A script is a stream of bytes together with the events that it must yield, however it is split into reads.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Begun, Credited, Deliveries, Event, Settled
from stream_feed import events_of

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
HEARTBEAT = bytes.fromhex("00000008 02000000")
LINKS = ("first", "second")


# -- frames, by hand -------------------------------------------------------------------------------------------------


def frame(code: int, fields: bytes, count: int, payload: bytes = b"", *, kind: int = 0, wide: bool = False) -> bytes:
    """One frame: header, described list, payload."""
    if wide or len(fields) > 254:
        body = b"\xd0" + struct.pack(">II", len(fields) + 4, count) + fields
    else:
        body = b"\xc0" + bytes((len(fields) + 1, count)) + fields
    content = b"\x00\x53" + bytes((code,)) + body + payload
    return struct.pack(">IBBH", len(content) + 8, 2, kind, 0) + content


def uint(value: int, *, wide: bool = False) -> bytes:
    if wide or value > 255:
        return b"\x70" + struct.pack(">I", value)
    return b"\x52" + bytes((value,)) if value else b"\x43"


def boolean(value: bool | None, *, wide: bool = False) -> bytes:
    if value is None:
        return b"\x40"
    if wide:
        return b"\x56\x01" if value else b"\x56\x00"
    return b"\x41" if value else b"\x42"


def string(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


def symbol(text: str) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text.encode()


def error(condition: str, description: str) -> bytes:
    fields = symbol(condition) + string(description)
    return b"\x00\x53\x1d\xc0" + bytes((len(fields) + 1, 2)) + fields


def mechanisms(*names: str) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode() for name in names)
    array = b"\xe0" + bytes((len(items) + 2, len(names), 0xA3)) + items
    return frame(0x40, array, 1, kind=1)


def outcome(code: int) -> bytes:
    return frame(0x44, b"\x50" + bytes((code,)), 1, kind=1)


def open_frame(*, max_frame_size: int = 65_536, idle_time_out_ms: int = 0) -> bytes:
    fields = string("server") + b"\x40" + uint(max_frame_size) + b"\x60\xff\xff" + uint(idle_time_out_ms)
    return frame(0x10, fields, 5)


def begin_frame(*, incoming_window: int = 2**31 - 1, next_outgoing_id: int = 0) -> bytes:
    return frame(0x11, b"\x60\x00\x00" + uint(next_outgoing_id) + uint(incoming_window) + uint(2**31 - 1), 4)


def attach(name: str, handle: int, *, receives: bool, granted: bool = True) -> bytes:
    """The server's answer to our link: it receives where we send."""
    source = b"\x00\x53\x28\xc0\x04\x01" + string("q") if granted or receives else b"\x40"
    target = b"\x00\x53\x29\xc0\x04\x01" + string("q") if granted or not receives else b"\x40"
    count = b"\x40" if receives else uint(0)
    fields = string(name) + uint(handle) + boolean(receives) + b"\x40\x40" + source + target + b"\x40\x40" + count
    return frame(0x12, fields, 10)


def flow(
    next_incoming_id: int, window: int, *, handle: int | None = None, delivery_count: int = 0, credit: int = 0,
    drain: bool | None = None, echo: bool | None = None,
) -> bytes:  # fmt: skip
    session = uint(next_incoming_id) + uint(window) + uint(0) + uint(2**31 - 1)
    link = b"\x40\x40\x40\x40" if handle is None else uint(handle) + uint(delivery_count) + uint(credit) + b"\x40"
    return frame(0x13, session + link + boolean(drain) + boolean(echo), 10)


def disposition(first: int, last: int, *, settled: bool = True, state: int = 0x24) -> bytes:
    fields = boolean(True) + uint(first) + uint(last) + boolean(settled) + b"\x00\x53" + bytes((state,)) + b"\x45"
    return frame(0x15, fields, 5)


def attached(name: str) -> bytes:
    """The answer to our sending link."""
    text = b"\xa1" + bytes((len(name),)) + name.encode()
    terminus = b"\x00\x53\x28\xc0\x01\x00", b"\x00\x53\x29\xc0\x04\x01\xa1\x01q"
    return frame(0x12, text + b"\x43" + boolean(True) + b"\x40\x40" + b"".join(terminus), 7)


def detach(handle: int, reason: bytes = b"\x40") -> bytes:
    return frame(0x16, uint(handle) + b"\x41" + reason, 3)


def close(reason: bytes = b"\x40") -> bytes:
    return frame(0x18, reason, 1)


def prologue(links: Iterable[str] = LINKS) -> bytes:
    """Everything that a server sends until our receiving links are attached."""
    answers = b"".join(attach(name, number, receives=False) for number, name in enumerate(links))
    return (
        SASL_HEADER
        + mechanisms("ANONYMOUS", "PLAIN")
        + outcome(0)
        + AMQP_HEADER
        + open_frame()
        + begin_frame()
        + answers
    )


# -- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """How a transfer and its message are written."""

    wide_id: bool = False
    wide_list: bool = False
    wide_bools: bool = False
    tag_bytes: int = 4
    settled: bool | None = False
    delivery_count: int | None = None  # None: no header section
    annotated: bool = False
    footer: bool = False
    wide_data: bool = False
    value_section: bool = False

    def message(self, body: bytes) -> bytes:
        parts = []
        if self.delivery_count is not None:
            fields = b"\x41\x50\x04\x40\x40" + uint(self.delivery_count)
            parts.append(b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, 5)) + fields)
        if self.annotated:
            pair = symbol("x-opt-key") + string("value")
            parts.append(b"\x00\x53\x72\xc1" + bytes((len(pair) + 1, 2)) + pair)
        parts.append(b"\x00\x53" + (b"\x77" if self.value_section else b"\x75"))
        if self.wide_data or len(body) > 255:
            parts.append(b"\xb0" + struct.pack(">I", len(body)) + body)
        else:
            parts.append(b"\xa0" + bytes((len(body),)) + body)
        if self.footer:
            parts.append(b"\x00\x53\x78\xc1\x01\x00")
        return b"".join(parts)

    def transfer(
        self, handle: int, delivery_id: int, payload: bytes, *, more: bool = False, aborted: bool = False
    ) -> bytes:
        tag = (delivery_id.to_bytes(4, "big") * 8)[-self.tag_bytes :] if self.tag_bytes else b""
        fields = uint(handle) + uint(delivery_id, wide=self.wide_id) + b"\xa0" + bytes((len(tag),)) + tag + b"\x43"
        fields += boolean(self.settled, wide=self.wide_bools) + boolean(more or None)
        fields += b"\x40\x40\x40" + boolean(aborted or None)
        return frame(0x14, fields, 10, payload, wide=self.wide_list)

    def next_fragment(self, handle: int, payload: bytes, *, more: bool) -> bytes:
        """A later frame of a message, which need not repeat the fields of the first."""
        return frame(0x14, uint(handle) + b"\x40\x40\x40\x40" + boolean(more), 6, payload)


@dataclass
class Script:
    """A growing stream and the events that it must yield."""

    first_id: int = 0
    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_id = self.first_id
        self._bodies = 0

    def message(self, shape: Shape, handle: int, body_length: int) -> None:
        body = self._body(body_length)
        self.octets += shape.transfer(handle, self.next_id, shape.message(body))
        self._expect(shape, handle, body)

    def fragmented(
        self, shape: Shape, handle: int, body_length: int, fragment_bytes: int, between: "Script | None" = None
    ) -> None:
        """One message in several frames; `between` holds complete messages on the other link, after the first frame."""
        body = self._body(body_length)
        message = shape.message(body)
        parts = [message[at : at + fragment_bytes] for at in range(0, len(message), fragment_bytes)] + [b""]
        delivery_id = self.next_id
        self.octets += shape.transfer(handle, delivery_id, parts[0], more=True)
        self.next_id += 1
        if between is not None:
            self.octets += between.octets
            self.expected += between.expected
            self.next_id = between.next_id
        for number, part in enumerate(parts[1:], 2):
            self.octets += shape.next_fragment(handle, part, more=number < len(parts))
        self._entry(shape, handle, delivery_id, body)

    def aborted(self, shape: Shape, handle: int) -> None:
        self.octets += shape.transfer(handle, self.next_id, b"\x00\x53\x75", more=True)
        self.octets += shape.transfer(handle, self.next_id, b"", aborted=True)
        self.next_id += 1

    def _body(self, length: int) -> bytes:
        self._bodies += 1
        return (self._bodies.to_bytes(4, "big") * (length // 4 + 1))[:length]

    def _expect(self, shape: Shape, handle: int, body: bytes) -> None:
        self._entry(shape, handle, self.next_id, body)
        self.next_id += 1

    def _entry(self, shape: Shape, handle: int, delivery_id: int, body: bytes) -> None:
        self.expected.append(
            ("message", handle, delivery_id, bool(shape.settled), body, bool(shape.delivery_count))
        )  # fmt: skip


shapes = st.builds(
    Shape,
    wide_id=st.booleans(),
    wide_list=st.booleans(),
    wide_bools=st.booleans(),
    tag_bytes=st.sampled_from([0, 1, 4, 32]),
    settled=st.sampled_from([True, False, None]),
    delivery_count=st.sampled_from([None, None, 0, 1, 300]),
    annotated=st.booleans(),
    footer=st.sampled_from([False, False, False, True]),
    wide_data=st.booleans(),
    value_section=st.sampled_from([False, False, False, True]),
)
plain = st.builds(Shape, wide_id=st.booleans(), settled=st.booleans())
sizes = st.sampled_from([0, 1, 7, 8, 32, 33, 40, 255, 256, 300])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A mixture of everything that can occur between two transfers, and of every encoding of a transfer."""
    script = Script(first_id=draw(st.sampled_from([0, 200, 65_530, 2**31])))
    for _ in range(draw(st.integers(1, 7))):
        handle = draw(st.integers(0, 1))
        shape = draw(plain | shapes)
        match draw(
            st.sampled_from(["run", "run", "run", "mixed", "fragments", "aborted", "heartbeat", "settled", "flow"])
        ):
            case "run":
                size = draw(sizes)
                for _ in range(draw(st.integers(1, 40))):
                    script.message(shape, handle, size)
            case "mixed":
                for size in draw(st.lists(sizes, max_size=6)):
                    script.message(shape, draw(st.integers(0, 1)), size)
            case "fragments":
                between = Script(first_id=script.next_id + 1)
                between._bodies = 10_000
                for _ in range(draw(st.integers(0, 5))):
                    between.message(shape, 1 - handle, 64)
                script.fragmented(shape, handle, draw(st.integers(1, 500)), draw(st.integers(20, 120)), between)
            case "aborted":
                script.aborted(shape, handle)
            case "heartbeat":
                script.octets += HEARTBEAT
            case "settled":
                script.octets += disposition(3, 9)
                script.expected.append(("settled", True, 3, 9, True))
            case "flow":
                script.octets += flow(0, 1000, handle=handle)
                script.expected.append(("credited", handle))
    return script


# -- reading ---------------------------------------------------------------------------------------------------------


def new_client(*, batching: bool = True) -> Connection:
    return Connection(container_id="client", batching=batching)


def receive(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    """Feed a client that attaches its receiving links once the session has begun; returns one entry per message."""
    received: list[tuple[Any, ...]] = []
    for event in events_of(connection, data, cuts):
        if isinstance(event, Begun):
            for name in LINKS:
                connection.attach_receiver(name, "q", settled=False)
        received += flattened(event)
    return received


def flattened(event: Event) -> list[tuple[Any, ...]]:
    if isinstance(event, Deliveries):
        return [
            ("message", event.handle, number, event.settled, body.tobytes(), event.redelivered)
            for number, body in zip(event.ids.tolist(), event.bodies, strict=True)
        ]
    if isinstance(event, Settled):
        return [("settled", event.role, first, last, event.settled) for first, last in event.ranges]
    if isinstance(event, Credited):
        return [("credited", event.handle)]
    return []
