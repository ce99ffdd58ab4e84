"""Can a broken or hostile peer do more than end its own connection?

Valid streams in both directions are damaged at random (bits, cuts, insertions, lengths, repeated and moved stretches)
and read by a connection that reacts as the load and the relay do. Only PeerError and Refused may come out, in bounded
time, and a small stream may not make us speak or remember without end.
"""

import contextlib
import random
import time
import tracemalloc

import pytest
from amqp10_streams import (
    AMQP_HEADER,
    HEARTBEAT,
    LINKS,
    SASL_HEADER,
    Script,
    Shape,
    attach,
    beginning,
    close,
    detach,
    disposition,
    error,
    events_of,
    flow,
    opening,
    prologue,
    spoken,
)

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.connection import RECEIVER, Connection
from crescendo.wire.amqp10.events import Attached, Begun, Deliveries, Detached, Settled
from crescendo.wire.amqp10.performatives import Source, Target

FAST_MUTATIONS = 3_000
SOAK_MUTATIONS = 1_000_000
MUTATION_LIMIT_S = 2.0  # far more than any of them needs, far less than a loop without end


def server_stream() -> bytes:
    """What a server says to a client that receives."""
    script = Script()
    for shape in (Shape(), Shape(wide_id=True), Shape(delivery_count=3, annotated=True), Shape(footer=True)):
        for _ in range(6):
            script.message(shape, 0, 40)
        script.pieces(shape, 1, 120, 50)
    script.octets += disposition(0, 5) + flow(0, 100, handle=0, echo=True) + HEARTBEAT
    script.octets += detach(1, error("amqp:not-found", "gone")) + close(error("amqp:connection:forced", "bye"))
    return prologue() + bytes(script.octets)


def client_stream() -> bytes:
    """What a client says to a server on which it sends and receives."""
    script = Script()
    for _ in range(12):
        script.message(Shape(wide_id=True, settled=False), 0, 40)
    init = bytes.fromhex("0000001d02010000 005341 c01002 a309") + b"ANONYMOUS" + b"\xa0\x02me"
    init = len(init).to_bytes(4, "big") + init[4:]
    links = attach("out", 0, receives=False) + attach("in", 1, receives=True) + flow(0, 100, handle=1, credit=9)
    rest = bytes(script.octets) + disposition(0, 3) + flow(0, 100, echo=True) + HEARTBEAT + detach(0) + close()
    return SASL_HEADER + init + AMQP_HEADER + opening() + beginning() + links + rest


def damaged(stream: bytes, dice: random.Random) -> bytes:
    octets = bytearray(stream)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        at = dice.randrange(len(octets))
        match dice.randrange(7):
            case 0:
                octets[at] ^= 1 << dice.randrange(8)
            case 1:
                octets[at] = dice.choice((0, 0x40, 0x45, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF))
            case 2:
                del octets[at : at + dice.randrange(1, 9)]
            case 3:
                octets[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                octets[at : at + 4] = dice.choice((0, 7, 8, 9, 255, 65_536, 2**31, 2**32 - 1)).to_bytes(4, "big")
            case 5:
                start = dice.randrange(len(octets))
                octets[at:at] = octets[start : start + dice.randrange(1, 200)]
            case 6:
                del octets[at:]
        if not octets:
            break
    return bytes(octets)


def survive(stream: bytes, dice: random.Random, *, server: bool) -> int:
    """Read the stream as we would in earnest; how many bytes it made us say."""
    connection = Connection(container_id="me", server=server, batching=dice.random() < 0.8)
    cuts = [dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 1, 3, 10)))]
    said = 0
    with contextlib.suppress(PeerError):  # the end of this connection, and of nothing else
        for event in events_of(connection, stream, cuts):
            react(connection, event, server=server)
            said += len(spoken(connection))
    return said + len(spoken(connection))


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
            assert event.bodies.sum() >= 0  # every byte that is promised is there
            if not event.settled:
                connection.settle(int(event.ids[0]), int(event.ids[-1]))
        case Settled(settled=False):
            connection.settle(event.first, event.last, event.state, role=not RECEIVER)
        case Detached(handle=handle):
            assert handle not in connection.links


def run(mutations: int, *, server: bool) -> None:
    whole = client_stream() if server else server_stream()
    dice = random.Random(20 + server)
    for number in range(mutations):
        stream = damaged(whole, dice)
        start_s = time.monotonic()
        said = survive(stream, dice, server=server)
        assert said <= 4096 + 64 * len(stream), f"mutation {number} made us say {said} bytes"
        assert time.monotonic() - start_s < MUTATION_LIMIT_S, f"mutation {number} took too long"


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_the_undamaged_streams_are_read_to_their_end(server: bool) -> None:
    connection = Connection(container_id="me", server=server)
    for event in events_of(connection, client_stream() if server else server_stream()):
        react(connection, event, server=server)
    assert connection.closed


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_damage_is_only_ever_the_peers_fault(server: bool) -> None:
    run(FAST_MUTATIONS // 2, server=server)


def test_damage_leaves_nothing_behind() -> None:
    run(50, server=True)
    tracemalloc.start()
    try:
        run(50, server=True)
        before, _ = tracemalloc.get_traced_memory()
        run(200, server=True)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


def test_a_client_cannot_make_a_server_remember_without_end() -> None:
    server = Connection(container_id="me", server=True)
    list(events_of(server, AMQP_HEADER + opening() + beginning() + attach("same", 0, receives=False)))
    with pytest.raises(PeerError):
        list(events_of(server, b"".join(attach("same", handle, receives=False) for handle in range(1, 1000))))
    assert len(server.links) == 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_a_million_kinds_of_damage_are_only_ever_the_peers_fault(server: bool) -> None:
    run(SOAK_MUTATIONS // 2, server=server)
