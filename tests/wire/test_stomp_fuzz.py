"""Can a broken or hostile STOMP peer do more than end its own connection?

Valid streams in both directions are damaged at random and read as the load reads them. Only PeerError and Failed may
come out, in bounded time, and a small stream may not make us speak or remember without end.
"""

import contextlib
import random
import time
import tracemalloc

import pytest
from stomp_streams import CONNECTED_1_2, Script, Shape, connected, events_of, raw, spoken

from crescendo.model.errors import PeerError
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.events import Deliveries, Receipts
from crescendo.wire.stomp.server import ServerConnection

FAST_MUTATIONS = 4_000
SOAK_MUTATIONS = 1_000_000
MUTATION_LIMIT_S = 2.0  # far more than any of them needs, far less than a loop without end
PIECES = (
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
    """What a server says to a client that receives."""
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
    """What a client says to a server."""
    sends = [raw("SEND", ["destination:/queue/q", "content-length:4", f"receipt:{n}"], b"a\0b\n") for n in range(12)]
    rest = [raw("SUBSCRIBE", ["id:0", "destination:q"]), raw("ACK", ["id:1"]), raw("BEGIN", ["transaction:t"]), b"\n"]
    return raw("CONNECT", ["accept-version:1.0,1.1,1.2", "host:/"]) + b"".join(sends + rest) + raw("DISCONNECT")


def damaged(stream: bytes, dice: random.Random) -> bytes:
    octets = bytearray(stream)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        at = dice.randrange(len(octets))
        match dice.randrange(7):
            case 0:
                octets[at] ^= 1 << dice.randrange(8)
            case 1:
                octets[at] = dice.choice((0, 10, 13, 48, 57, 58, 92, 255))
            case 2:
                del octets[at : at + dice.randrange(1, 9)]
            case 3:
                octets[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                octets[at:at] = dice.choice(PIECES)
            case 5:
                start = dice.randrange(len(octets))
                octets[at:at] = octets[start : start + dice.randrange(1, 200)]
            case 6:
                del octets[at:]
        if not octets:
            break
    return bytes(octets)


def survive_as_client(stream: bytes, dice: random.Random) -> int:
    """Read the stream as we would in earnest; how many bytes it made us say."""
    client = Connection(host="/", batching=dice.random() < 0.8)
    said = len(spoken(client))
    cuts = [dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 1, 3, 10)))]
    with contextlib.suppress(PeerError):  # the end of this connection, and of nothing else
        for event in events_of(client, stream, cuts):
            if isinstance(event, Deliveries):
                assert event.bodies.sum() >= 0  # every byte that is promised is there
                client.ack(event.subscription, event.ids[-1])
            elif isinstance(event, Receipts):
                assert len(list(event.ids)) >= 1
            said += len(spoken(client))
    return said


def survive_as_server(stream: bytes, dice: random.Random) -> int:
    server = ServerConnection()
    with contextlib.suppress(PeerError):
        while stream:
            count = dice.randrange(1, len(stream) + 1)
            server.receive_buffer()[:count] = stream[:count]
            server.received(count)
            stream = stream[count:]
            while (frame := server.next_frame()) is not None:
                assert len(bytes(frame.body)) >= 0
                if "receipt" in frame.headers and server.agreement is not None and not server.closed:
                    server.receipt(frame.headers["receipt"])
    return len(spoken(server))


def run(mutations: int, *, server: bool) -> None:
    whole = client_stream() if server else server_stream()
    survive = survive_as_server if server else survive_as_client
    dice = random.Random(40 + server)
    for number in range(mutations):
        stream = damaged(whole, dice)
        start_s = time.monotonic()
        said = survive(stream, dice)
        assert said <= 4096 + 64 * len(stream), f"mutation {number} made us say {said} bytes"
        assert time.monotonic() - start_s < MUTATION_LIMIT_S, f"mutation {number} took too long"


def test_the_undamaged_streams_are_read_to_their_end() -> None:
    client = Connection(host="/")
    messages = sum(len(e.ids) for e in events_of(client, server_stream()) if isinstance(e, Deliveries))
    assert messages == 60
    assert client.closed
    server = ServerConnection()
    octets = client_stream()
    server.receive_buffer()[: len(octets)] = octets
    server.received(len(octets))
    commands = []
    while (frame := server.next_frame()) is not None:
        commands.append(frame.command)
    assert commands == ["CONNECT", *["SEND"] * 12, "SUBSCRIBE", "ACK", "BEGIN", "DISCONNECT"]


@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_damage_is_only_ever_the_peers_fault(server: bool) -> None:
    run(FAST_MUTATIONS // 2, server=server)


def test_damage_leaves_nothing_behind() -> None:
    run(50, server=False)
    tracemalloc.start()
    try:
        run(50, server=False)
        before, _ = tracemalloc.get_traced_memory()
        run(200, server=False)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 256 * 1024


@pytest.mark.parametrize("octets", [b"\n" * 400_000, b"M\n\n\0" * 50_000, b"MESSAGE\r\na:\r\n\r\n\0" * 20_000])
def test_many_small_things_take_bounded_time(octets: bytes) -> None:
    start_s = time.process_time()
    with contextlib.suppress(PeerError):
        list(events_of(Connection(host="/"), connected("1.0") + octets))
    assert time.process_time() - start_s < 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("server", [False, True], ids=["client", "server"])
def test_a_million_kinds_of_damage_are_only_ever_the_peers_fault(server: bool) -> None:
    run(SOAK_MUTATIONS // 2, server=server)
