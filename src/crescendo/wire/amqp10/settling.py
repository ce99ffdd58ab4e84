"""How do a thousand settlements become one?

Many brokers settle each delivery with a frame of its own. Those frames are alike but for the number, and the numbers
count up; so a run of them means one settlement of a range. Only the scalar codec decides what a frame means; this
module only recognises more of the same.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp10.batch import field_at
from crescendo.wire.amqp10.performatives import Disposition

Octets = npt.NDArray[np.uint8]

_UINT = 0x70
_UINT_BYTES = 4
_FIRST, _LAST = 1, 2  # which fields of the performative
_SERIAL = 0xFFFF_FFFF
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16


class Settling(NamedTuple):
    """Where the numbers stand in dispositions that look alike, and what all other bytes must be."""

    head: Octets
    fixed: npt.NDArray[np.bool_]  # false where the numbers stand
    first_at: int
    last_at: int | None  # None: each settles one delivery
    disposition: Disposition
    pieces: tuple[tuple[int, bytes], ...]  # the other bytes again: where each stretch of them stands

    @property
    def length(self) -> int:
        return len(self.head)

    def one(self, octets: bytes) -> tuple[int, int] | None:
        """The deliveries that a single frame settles; for one, setting up arrays would cost more than all the rest."""
        for at, piece in self.pieces:
            if not octets.startswith(piece, at):
                return None
        first = int.from_bytes(octets[self.first_at : self.first_at + _UINT_BYTES], "big")
        if self.last_at is None:
            return first, first
        return first, int.from_bytes(octets[self.last_at : self.last_at + _UINT_BYTES], "big")

    def run(self, rows: Octets) -> tuple[int, int, int]:
        """How many rows from the first go on from one another, and the deliveries that they settle together.

        In growing strides: looking at all that has arrived for each that stands alone would take quadratic time.
        """
        count, stride, first, last = 0, _FIRST_STRIDE, 0, 0
        while count < len(rows):
            some = rows[count : count + stride]
            firsts = self._numbers(some, self.first_at)
            lasts = firsts if self.last_at is None else self._numbers(some, self.last_at)
            if not count:
                first = last = int(firsts[0])
            expected = np.concatenate(([last + 1 if count else first], lasts[:-1] + 1)) & _SERIAL
            breaks = (firsts != expected) | ((some != self.head) & self.fixed).any(axis=1)
            taken = int(breaks.argmax()) if breaks.any() else len(some)
            if taken:
                last = int(lasts[taken - 1])
            count += taken
            if taken < len(some):
                break
            stride *= _STRIDE_GROWTH
        return count, first, last

    def _numbers(self, rows: Octets, at: int) -> npt.NDArray[np.int64]:
        return rows[:, at : at + _UINT_BYTES].view(">u4")[:, 0].astype(np.int64)


def settling_of(octets: memoryview, disposition: Disposition) -> Settling | None:
    """The layout of a decoded disposition, or None when its numbers are not of full width."""
    places = [field_at(octets, _FIRST)]
    if disposition.last is not None:
        places.append(field_at(octets, _LAST))
    if any(octets[place] != _UINT for place in places):
        return None
    fixed = np.ones(len(octets), bool)
    for place in places:
        fixed[place + 1 : place + 1 + _UINT_BYTES] = False
    last_at = places[1] + 1 if len(places) > 1 else None
    whole = bytes(octets)
    starts, ends = [0, *(place + 1 + _UINT_BYTES for place in places)], [*(place + 1 for place in places), len(whole)]
    pieces = tuple((start, whole[start:end]) for start, end in zip(starts, ends, strict=True))
    return Settling(np.frombuffer(whole, np.uint8), fixed, places[0] + 1, last_at, disposition, pieces)
