"""Valid streams with random damage, and the loop that feeds them to a fuzz target.

Knows no protocol: the fuzz target brings the stream and the reactions of a connection to it.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crescendo.model.errors import PeerError
from stream_feed import events_of, take_outgoing

CPU_LIMIT_S = 2.0  # far more than any stream needs, far less than an endless loop
BASE_REPLY_BYTES = 4096


@dataclass(frozen=True)
class FuzzTarget:
    """A client or a server of one protocol, and a valid stream for it."""

    name: str
    stream: bytes
    read_damaged: Callable[[bytes, random.Random], int]
    """Read a damaged stream and react to it; returns the bytes sent in reply. Raises only for a bug of ours."""
    read_undamaged: Callable[[], None]
    """Read the undamaged stream and assert that it was understood."""
    special_octets: bytes
    """Octets with a meaning in this protocol, which do most harm in the wrong position."""
    corrupt: Callable[[bytearray, int, random.Random], None]
    """Apply the damage that is most harmful to this protocol: lengths, separators, identifiers."""
    allowance: int = 64
    """How many bytes of reply one received byte may cause."""


def damaged(target: FuzzTarget, rng: random.Random) -> bytes:
    octets = bytearray(target.stream)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(octets))
        match rng.randrange(7):
            case 0:
                octets[at] ^= 1 << rng.randrange(8)
            case 1:
                octets[at] = rng.choice(target.special_octets)
            case 2:
                del octets[at : at + rng.randrange(1, 9)]
            case 3:
                octets[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                target.corrupt(octets, at, rng)
            case 5:
                start = rng.choice((at, rng.randrange(len(octets))))
                octets[at:at] = octets[start : start + rng.randrange(1, 200)] * rng.choice((1, 1, 3))
            case 6:
                del octets[at:]
        if not octets:
            break
    return bytes(octets)


def fuzz(target: FuzzTarget, mutations: int, seed: int) -> None:
    """Only PeerError may end a connection; time and replies stay bounded."""
    rng = random.Random(f"{target.name} {seed}")
    for number in range(mutations):
        stream = damaged(target, rng)
        start_s = time.process_time()
        reply_bytes = target.read_damaged(stream, rng)
        spent_s = time.process_time() - start_s
        assert reply_bytes <= BASE_REPLY_BYTES + target.allowance * len(stream), (
            f"{number} caused {reply_bytes}: {stream.hex()}"
        )
        assert spent_s < CPU_LIMIT_S, f"{number} took {spent_s:.1f} s: {stream.hex()}"


def read_and_react(connection: Any, stream: bytes, rng: random.Random, react: Callable[[Any, object], None]) -> int:
    """Read a stream in chunks and react to every event; returns the bytes sent in reply."""
    reply_bytes = 0
    with contextlib.suppress(PeerError):  # ends this connection, and nothing else
        for event in events_of(connection, stream, cuts_in(stream, rng)):
            react(connection, event)
            reply_bytes += len(take_outgoing(connection))
    return reply_bytes + len(take_outgoing(connection))


def read_and_answer(
    server: Any,
    next_request: Callable[[], Any],
    stream: bytes,
    rng: random.Random,
    answer: Callable[[Any], None],
) -> int:
    """Read a stream of requests in chunks and answer every one; returns the bytes sent in reply."""
    with contextlib.suppress(PeerError):
        while stream:
            count = rng.randrange(1, len(stream) + 1)
            _feed(server, stream[:count])
            stream = stream[count:]
            while (found := next_request()) is not None:
                answer(found)
    return len(take_outgoing(server))


def requests_in(server: Any, next_request: Callable[[], Any], stream: bytes) -> list[Any]:
    """Every request of a stream that is read at once."""
    _feed(server, stream)
    return list(iter(next_request, None))


def _feed(server: Any, octets: bytes) -> None:
    server.receive_buffer()[: len(octets)] = octets
    server.received(len(octets))


def cuts_in(stream: bytes, rng: random.Random) -> list[int]:
    """Random positions at which a stream is split into reads."""
    return [rng.randrange(len(stream) + 1) for _ in range(rng.choice((0, 1, 3, 10)))]


def overwrite_length(octets: bytearray, at: int, rng: random.Random) -> None:
    octets[at : at + 4] = rng.choice((0, 7, 8, 9, 255, 65_536, 2**31, 2**32 - 1)).to_bytes(4, "big")
