"""Valid streams, damaged with dice, and a victim that reads them as we would in earnest.

Knows no protocol: what a stream is made of, and how a connection reacts to what it reads, comes with the victim.
"""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crescendo.model.errors import PeerError
from stream_feed import events_of, spoken

SURVIVAL_LIMIT_S = 2.0  # of CPU time: far more than any stream needs, far less than a loop without end
SMALL_TALK_BYTES = 4096


@dataclass(frozen=True)
class Victim:
    """One side of one protocol."""

    name: str
    whole: bytes
    survive: Callable[[bytes, random.Random], int]
    """Read a stream and react to it; how many bytes that made us say. Raises nothing but what is a fault of ours."""
    read_to_the_end: Callable[[], None]
    """Read the undamaged stream, and assert that it was understood."""
    octets: bytes
    """What means most in this protocol where it does not belong."""
    scribble: Callable[[bytearray, int, random.Random], None]
    """The damage that hurts this protocol most: lengths, separators, identifiers."""
    allowance: int = 64
    """How many bytes a byte may make us say."""


def damaged(victim: Victim, dice: random.Random) -> bytes:
    octets = bytearray(victim.whole)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        at = dice.randrange(len(octets))
        match dice.randrange(7):
            case 0:
                octets[at] ^= 1 << dice.randrange(8)
            case 1:
                octets[at] = dice.choice(victim.octets)
            case 2:
                del octets[at : at + dice.randrange(1, 9)]
            case 3:
                octets[at:at] = dice.randbytes(dice.randrange(1, 9))
            case 4:
                victim.scribble(octets, at, dice)
            case 5:
                start = dice.choice((at, dice.randrange(len(octets))))
                octets[at:at] = octets[start : start + dice.randrange(1, 200)] * dice.choice((1, 1, 3))
            case 6:
                del octets[at:]
        if not octets:
            break
    return bytes(octets)


def bombard(victim: Victim, mutations: int, seed: int) -> None:
    """Nothing but PeerError may end a connection, in bounded time, and without making us talk without end."""
    dice = random.Random(f"{victim.name} {seed}")
    for number in range(mutations):
        stream = damaged(victim, dice)
        start_s = time.process_time()
        said = victim.survive(stream, dice)
        spent_s = time.process_time() - start_s
        assert said <= SMALL_TALK_BYTES + victim.allowance * len(stream), f"{number} made us say {said}: {stream.hex()}"
        assert spent_s < SURVIVAL_LIMIT_S, f"{number} took {spent_s:.1f} s: {stream.hex()}"


def live_through(connection: Any, stream: bytes, dice: random.Random, react: Callable[[Any, object], None]) -> int:
    """Read a stream in pieces and react to every event; how many bytes that made the connection say."""
    said = 0
    with contextlib.suppress(PeerError):  # the end of this connection, and of nothing else
        for event in events_of(connection, stream, cuts_in(stream, dice)):
            react(connection, event)
            said += len(spoken(connection))
    return said + len(spoken(connection))


def cuts_in(stream: bytes, dice: random.Random) -> list[int]:
    """Where a stream is cut into reads."""
    return [dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 1, 3, 10)))]


def overwrite_length(octets: bytearray, at: int, dice: random.Random) -> None:
    octets[at : at + 4] = dice.choice((0, 7, 8, 9, 255, 65_536, 2**31, 2**32 - 1)).to_bytes(4, "big")
