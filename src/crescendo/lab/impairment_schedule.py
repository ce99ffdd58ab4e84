"""What happens to packet n of a link?

Pure: a seed, a link and a direction give a sequence of random numbers, and every packet takes the same number of them,
whatever the impairment is. So packet n has the same fate in every run with the same seed, also after the impairment of
the link was changed and changed back. Reads no clock, no packet and no socket.
"""

import heapq
import random
from typing import Generic, Literal, NamedTuple, TypeVar

from crescendo.model.lab_network import Impairment

Direction = Literal["up", "down"]
_PER_PACKET = 6


class PacketFate(NamedTuple):
    """What happens to one packet."""

    delays_ns: tuple[int, ...]  # one per copy; empty: it is lost
    corrupt_at: float | None = None  # which bit changes, as a fraction of the packet
    overtakes: bool = False


class ImpairmentSchedule:
    """The fates of the packets of one direction, in their order."""

    def __init__(self, seed: int, link: str, direction: Direction) -> None:
        self._random = random.Random(f"{seed}/{link}/{direction}")  # noqa: S311 - repeatable, not secret

    def next_fate(self, impairment: Impairment) -> PacketFate:
        lost, doubled, overtaking, damaged, where, spread = (self._random.random() for _ in range(_PER_PACKET))
        if lost < impairment.loss:
            return PacketFate(())
        overtakes = overtaking < impairment.reorder
        delay_ns = 0 if overtakes else int(impairment.delay) + round((2 * spread - 1) * impairment.jitter)
        copies = 2 if doubled < impairment.duplicate else 1
        return PacketFate((delay_ns,) * copies, where if damaged < impairment.corrupt else None, overtakes)


Packet = TypeVar("Packet")


class DelayLine(Generic[Packet]):
    """Packets on their way through one direction. They leave in the order of their arrival, unless they overtake."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Packet]] = []
        self._number = 0
        self._last_due_ns = 0

    def add(self, packet: Packet, now_ns: int, fate: PacketFate) -> None:
        for delay_ns in fate.delays_ns:
            due_ns = now_ns + delay_ns
            if not fate.overtakes:
                due_ns = self._last_due_ns = max(due_ns, self._last_due_ns)
            heapq.heappush(self._waiting, (due_ns, self._number, packet))
            self._number += 1

    def due(self, now_ns: int) -> list[Packet]:
        """The packets that leave by now."""
        leaving = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            leaving.append(heapq.heappop(self._waiting)[2])
        return leaving

    @property
    def next_due_ns(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None


def with_changed_bit(packet: bytes, at: float, keep_bytes: int) -> bytes:
    """The packet with one bit changed, after its first bytes, which a switch must be able to read."""
    if len(packet) <= keep_bytes:
        return packet
    bit = int(at * (len(packet) - keep_bytes) * 8)
    changed = bytearray(packet)
    changed[keep_bytes + bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
