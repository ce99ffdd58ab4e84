"""Which bytes might a STOMP server send, and what do they mean?

Frames are composed here by hand from the specification, so that neither the scalar codec nor the batch path checks
itself. A script is a stream of bytes together with the events that it must yield in any chunking.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, Receipts
from stream_feed import events_of, take_outgoing

CONNECTED_1_2 = b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0"


def raw(command: str, lines: Iterable[str] = (), body: bytes = b"", *, end: str = "\n") -> bytes:
    """One frame, exactly as given."""
    return end.join([command, *lines, "", ""]).encode() + body + b"\0"


def connected(version: str) -> bytes:
    return raw("CONNECTED", [f"version:{version}"] if version != "1.0" else [])


def client_of(version: str = "1.2", *, batching: bool = True, **options: Any) -> Connection:
    """A connected client."""
    client = Connection(host="/", batching=batching, **options)
    assert [type(event) for event in events_of(client, connected(version))] == [Connected]
    take_outgoing(client)
    return client


def flattened(event: Event) -> Iterator[tuple[Any, ...]]:
    """An event as values, one per message, so that batches and single messages compare equal."""
    match event:
        case Deliveries(subscription=subscription, redelivered=redelivered):
            assert len(event.ids) == len(event.bodies)
            for name, body in zip(event.ids, event.bodies, strict=True):
                yield ("message", subscription, name, redelivered, body.tobytes())
        case Receipts(ids=ids, numbers=numbers):
            assert numbers is None or numbers.tolist() == [int(name) for name in ids]
            for name in ids:
                yield ("receipt", name)
        case Failed(reason=reason):
            yield ("failed", reason)
        case Connected(agreement=agreement):
            yield ("connected", agreement.version.value)


def listen(connection: Connection, data: bytes, cuts: Iterable[int] = ()) -> list[tuple[Any, ...]]:
    return [entry for event in events_of(connection, data, cuts) for entry in flattened(event)]


@dataclass(frozen=True)
class Shape:
    """One way in which brokers write their messages."""

    prefix: str = "T_0@@session-Ab9@@"
    crlf: bool = False
    gap: bytes = b"\n"
    timed: bool = False
    redelivered: bool | None = False
    sized: bool = True
    repeated: bool = False
    subscription: str = "0"

    def message(self, number: int, body: bytes) -> tuple[bytes, tuple[Any, ...]]:
        name = f"{self.prefix}{number}"
        spelt = name.replace("\\", "\\\\").replace(":", "\\c")
        lines = [f"subscription:{self.subscription}", "destination:/queue/q1", f"message-id:m{spelt}", f"ack:{spelt}"]
        if self.timed:
            lines += ["expires:0", f"timestamp:{1_700_000_000_000 + number}"]
        if self.redelivered is not None:
            lines.append(f"redelivered:{str(self.redelivered).lower()}")
        if self.repeated:
            lines += ["ack:another", f"message-id:{number}"]
        if self.sized:
            lines.append(f"content-length:{len(body)}")
        else:
            body = body.replace(b"\0", b"\1")
        octets = raw("MESSAGE", lines, body, end="\r\n" if self.crlf else "\n") + self.gap
        return octets, ("message", self.subscription, name, bool(self.redelivered), body)


@dataclass
class Script:
    """A stream of frames and what they mean."""

    octets: bytearray = field(default_factory=bytearray)
    expected: list[tuple[Any, ...]] = field(default_factory=list)

    def message(self, shape: Shape, number: int, body: bytes) -> None:
        octets, meaning = shape.message(number, body)
        self.octets += octets
        self.expected.append(meaning)

    def receipt(self, name: str) -> None:
        self.octets += raw("RECEIPT", [f"receipt-id:{name}"]) + b"\n"
        self.expected.append(("receipt", name))


shapes = st.builds(
    Shape,
    prefix=st.sampled_from(["", "T_0@@session-Ab9@@", "ID:host-1-2:1:", "\\x:", "ü-"]),
    crlf=st.booleans(),
    gap=st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\n\n\n"]),
    timed=st.booleans(),
    redelivered=st.sampled_from([None, False, False, True]),
    sized=st.sampled_from([True, True, True, False]),
    repeated=st.booleans(),
    subscription=st.sampled_from(["0", "0", "1"]),
)
lengths = st.sampled_from([0, 1, 3, 8, 32, 33, 256])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Runs of one shape, broken by other shapes, receipts, heart-beats and numbers that grow a digit."""
    script = Script()
    number = draw(st.sampled_from([0, 5, 95, 990, 10**12]))
    for _ in range(draw(st.integers(1, 5))):
        shape = draw(shapes)
        length = draw(lengths)
        filling = draw(st.sampled_from([b"\0", b"a\n\nb\0", b"MESSAGE\n\n\0", bytes(range(256))]))
        for _ in range(draw(st.sampled_from([1, 2, 3, 40]))):
            script.message(shape, number, (filling * (length // len(filling) + 1))[:length])
            number += draw(st.sampled_from([1, 1, 1, 7]))
        for count in range(draw(st.sampled_from([0, 0, 1, 25]))):
            script.receipt(draw(st.sampled_from([f"{number + count:016d}", f"{number + count}", f"r-{count}"])))
        script.octets += draw(st.sampled_from([b"", b"\n", b"\r\n\n"]))
    return script
