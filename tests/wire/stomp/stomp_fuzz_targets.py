"""Streams of STOMP in both directions, and connections that read them as the load does."""

import random

from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.events import Deliveries, Receipts
from crescendo.wire.stomp.frames import Frame
from crescendo.wire.stomp.server import ServerConnection
from fuzzing import FuzzTarget, read_and_answer, read_and_react, requests_in
from stomp_streams import CONNECTED_1_2, Script, Shape, raw
from stream_feed import events_of

FRAGMENTS = (
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\0",
    b":",
    b"\\",
    b"\\c",
    b"content-length:",
    b"9",
    b"999999999999",
    b"-1",
    b"\xff",
)


def server_stream() -> bytes:
    """The frames of a server to a receiving client."""
    script = Script()
    number = 5
    for shape in (Shape(), Shape(crlf=True), Shape(timed=True, gap=b""), Shape(sized=False), Shape(prefix="a:\\")):
        for _ in range(12):
            script.message(shape, number, b"MESSAGE\n\n\0" * 4)
            number += 1
        for _ in range(6):
            script.receipt(f"{number:016d}")
    return CONNECTED_1_2 + bytes(script.octets) + raw("ERROR", ["message:over"], b"and out")


def client_stream() -> bytes:
    """The frames of a client to a server."""
    sends = [raw("SEND", ["destination:/queue/q", "content-length:4", f"receipt:{n}"], b"a\0b\n") for n in range(12)]
    rest = [raw("SUBSCRIBE", ["id:0", "destination:q"]), raw("ACK", ["id:1"]), raw("BEGIN", ["transaction:t"]), b"\n"]
    return raw("CONNECT", ["accept-version:1.0,1.1,1.2", "host:/"]) + b"".join(sends + rest) + raw("DISCONNECT")


def survive_as_client(stream: bytes, dice: random.Random) -> int:
    """Read the stream as the load does; returns the number of bytes written in answer."""
    return read_and_react(Connection(host="/", batching=dice.random() < 0.8), stream, dice, react)


def react(client: Connection, event: object) -> None:
    if isinstance(event, Deliveries):
        assert event.bodies.sum() >= 0  # every announced byte is readable
        client.ack(event.subscription, event.ids[-1])
    elif isinstance(event, Receipts):
        assert len(list(event.ids)) >= 1


def survive_as_server(stream: bytes, dice: random.Random) -> int:
    server = ServerConnection()

    def answer(frame: Frame) -> None:
        assert len(bytes(frame.body)) >= 0
        if "receipt" in frame.headers and server.agreement is not None and not server.closed:
            server.receipt(frame.headers["receipt"])

    return read_and_answer(server, server.next_frame, stream, dice, answer)


def client_reads_to_the_end() -> None:
    client = Connection(host="/")
    messages = sum(len(e.ids) for e in events_of(client, server_stream()) if isinstance(e, Deliveries))
    assert messages == 60
    assert client.closed


def server_reads_to_the_end() -> None:
    server = ServerConnection()
    frames = requests_in(server, server.next_frame, client_stream())
    assert [frame.command for frame in frames] == ["CONNECT", *["SEND"] * 12, "SUBSCRIBE", "ACK", "BEGIN", "DISCONNECT"]


def insert_fragment(octets: bytearray, at: int, dice: random.Random) -> None:
    octets[at:at] = dice.choice(FRAGMENTS)


OCTETS = bytes((0, 10, 13, 48, 57, 58, 92, 255))
STOMP_FUZZ_TARGETS = [
    FuzzTarget("stomp-client", server_stream(), survive_as_client, client_reads_to_the_end, OCTETS, insert_fragment),
    FuzzTarget("stomp-server", client_stream(), survive_as_server, server_reads_to_the_end, OCTETS, insert_fragment),
]
