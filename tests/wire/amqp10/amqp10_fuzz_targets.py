"""Streams of AMQP 1.0 in both directions, and connections that read them as the load generator and the relay do."""

import random
from functools import partial

from amqp10_streams import (
    AMQP_HEADER,
    HEARTBEAT,
    LINKS,
    SASL_HEADER,
    Script,
    Shape,
    attach,
    begin_frame,
    close,
    detach,
    disposition,
    error,
    flow,
    open_frame,
    prologue,
)
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Attached, Begun, Deliveries, Detached, Settled
from crescendo.wire.amqp10.links import RECEIVER
from crescendo.wire.amqp10.performatives import Source, Target
from fuzzing import FuzzTarget, overwrite_length, read_and_react
from stream_feed import events_of


def server_stream() -> bytes:
    """The bytes of a server to a client that receives."""
    script = Script()
    for shape in (Shape(), Shape(wide_id=True), Shape(delivery_count=3, annotated=True), Shape(footer=True)):
        for _ in range(6):
            script.message(shape, 0, 40)
        script.fragmented(shape, 1, 120, 50)
    script.octets += disposition(0, 5) + flow(0, 100, handle=0, echo=True) + HEARTBEAT
    script.octets += detach(1, error("amqp:not-found", "gone")) + close(error("amqp:connection:forced", "bye"))
    return prologue() + bytes(script.octets)


def client_stream() -> bytes:
    """The bytes of a client that sends to and receives from a server."""
    script = Script()
    for _ in range(12):
        script.message(Shape(wide_id=True, settled=False), 0, 40)
    init = bytes.fromhex("0000001d02010000 005341 c01002 a309") + b"ANONYMOUS" + b"\xa0\x02me"
    init = len(init).to_bytes(4, "big") + init[4:]
    links = attach("out", 0, receives=False) + attach("in", 1, receives=True) + flow(0, 100, handle=1, credit=9)
    rest = bytes(script.octets) + disposition(0, 3) + flow(0, 100, echo=True) + HEARTBEAT + detach(0) + close()
    return SASL_HEADER + init + AMQP_HEADER + open_frame() + begin_frame() + links + rest


def read_damaged(stream: bytes, rng: random.Random, *, server: bool) -> int:
    connection = Connection(container_id="me", server=server, batching=rng.random() < 0.8)
    return read_and_react(connection, stream, rng, partial(react, server=server))


def react(connection: Connection, event: object, *, server: bool) -> None:
    match event:
        case Begun() if not server:
            for name in LINKS:
                connection.attach_receiver(name, "q", settled=False)
        case Attached(handle=handle, attach=asked) if server:
            terminus = asked.source if asked.role is RECEIVER else asked.target
            if not isinstance(terminus, Source | Target):
                connection.refuse_attach(handle, asked, "amqp:invalid-field", "no address")
                return
            connection.accept_attach(handle, asked)
            if asked.role is RECEIVER:
                if connection.sendable(handle, 300):
                    connection.transfer_one(handle, bytes(300), settled=False)
            else:
                connection.grant(handle, 100)
        case Deliveries():
            assert event.bodies.sum() >= 0  # every announced byte is present
            if not event.settled:
                connection.settle(int(event.ids[0]), int(event.ids[-1]))
        case Settled(settled=False):
            for first, last in event.ranges:
                connection.settle(first, last, event.state, role=not RECEIVER)
        case Detached(handle=handle):
            assert handle not in connection.links


def read_undamaged(*, server: bool) -> None:
    connection = Connection(container_id="me", server=server)
    for event in events_of(connection, client_stream() if server else server_stream()):
        react(connection, event, server=server)
    assert connection.closed


AMQP10_FUZZ_TARGETS = [
    FuzzTarget(
        f"amqp10-{'server' if server else 'client'}",
        client_stream() if server else server_stream(),
        partial(read_damaged, server=server),
        partial(read_undamaged, server=server),
        bytes((0, 0x40, 0x45, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF)),
        overwrite_length,
    )
    for server in (False, True)
]
