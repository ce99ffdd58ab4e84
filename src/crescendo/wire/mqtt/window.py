"""Which of our packets are in flight, and to which message does an acknowledgement refer?

Packet identifiers run from 1 to 65,535 and wrap around. Each packet that needs one takes the next, so an identifier
maps to exactly one of the last 65,535 packets and gives its number (0, 1, 2, … in sending order). An identifier is not
reused while its previous packet is in flight. Acknowledgements may arrive in any order.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.packet_types import PacketType

IDS = 65_535
_FREE = 0
_BUSY = b"\x01"
Range = tuple[int, int]


def id_of(number: int) -> int:
    """The identifier of the packet with this number."""
    return number % IDS + 1


def ids_of(first_number: int, count: int) -> npt.NDArray[np.uint16]:
    """The identifiers of the packets with these numbers."""
    numbers = np.arange(first_number, first_number + count, dtype=np.int64)
    return (numbers % IDS + 1).astype(np.uint16)


class Window:
    """Our identifiers, each with the answer it awaits."""

    def __init__(self, limit: int = IDS) -> None:
        self.limit = limit  # how many packets the peer accepts unanswered
        self.in_flight = 0
        self.next_number = 0
        self._oldest = 0
        self._awaited = bytearray(IDS + 1)  # by identifier: the packet type of the answer
        self._busy = bytearray(IDS + 1)  # the same as 0 and 1, for a fast search
        self._awaited_column = np.frombuffer(self._awaited, np.uint8)
        self._busy_column = np.frombuffer(self._busy, np.uint8)

    @property
    def room(self) -> int:
        """How many packets may be sent now."""
        span = self.next_number - self._oldest
        return max(min(self.limit - self.in_flight, IDS - span), 0)

    def take(self, count: int, awaited: PacketType) -> int:
        """Allocate the next `count` identifiers; returns the number of the first."""
        first = self.next_number
        if first + count - self._oldest > IDS:
            raise ValueError(f"{count} packet identifiers requested where {IDS - (first - self._oldest)} are free")
        for low, high in _id_ranges(first, first + count):
            self._awaited_column[low:high] = awaited
            self._busy_column[low:high] = 1
        self.next_number += count
        self.in_flight += count
        return first

    def awaits(self, packet_id: int, answer: PacketType) -> bool:
        return self._awaited[packet_id] == answer

    def answered_one(self, packet_id: int, answer: PacketType, *, then: PacketType | None = None) -> int:
        """Take an answer; returns the number of its packet. `then` is the next answer to await."""
        if self._awaited[packet_id] != answer:
            raise _unexpected(answer, packet_id)
        number = self._number(packet_id)
        if then is not None:
            self._awaited[packet_id] = then
            return number
        self._awaited[packet_id] = _FREE
        self._busy[packet_id] = 0
        self.in_flight -= 1
        self._advance()
        return number

    def answered(
        self, ids: npt.NDArray[np.uint16], answer: PacketType, *, then: PacketType | None = None
    ) -> list[Range]:
        """Take many answers; returns the numbers of their packets as ranges in arrival order."""
        unexpected = self._awaited_column[ids] != answer
        if unexpected.any():
            raise _unexpected(answer, int(ids[unexpected.argmax()]))
        last = self.next_number - 1
        numbers = last - (last - (ids.astype(np.int64) - 1)) % IDS
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        if len(breaks) and len(np.unique(numbers)) != len(numbers):
            raise PeerError(f"{answer.name} arrived twice for one packet")
        self._awaited_column[ids] = _FREE if then is None else then
        if then is None:
            self._busy_column[ids] = 0
            self.in_flight -= len(ids)
            self._advance()
        firsts = numbers[np.concatenate(([0], breaks))].tolist()
        lasts = numbers[np.concatenate((breaks - 1, [len(numbers) - 1]))].tolist()
        return list(zip(firsts, lasts, strict=True))

    def _number(self, packet_id: int) -> int:
        last = self.next_number - 1
        return last - (last - (packet_id - 1)) % IDS

    def _advance(self) -> None:
        """Move the start of the window up to the oldest packet still in flight."""
        for low, high in _id_ranges(self._oldest, self.next_number):
            at = self._busy.find(_BUSY, low, high)
            if at >= 0:
                self._oldest += at - low
                return
            self._oldest += high - low


def _id_ranges(first: int, end: int) -> Iterator[Range]:
    """The identifiers of the numbers first to end (exclusive), in at most two ranges because they wrap around."""
    count = end - first
    low = first % IDS + 1
    before_wrap = min(count, IDS + 1 - low)
    if before_wrap:
        yield low, low + before_wrap
    if count > before_wrap:
        yield 1, 1 + count - before_wrap


def _unexpected(answer: PacketType, packet_id: int) -> PeerError:
    return PeerError(f"{answer.name} for packet {packet_id}, which does not await that answer")
