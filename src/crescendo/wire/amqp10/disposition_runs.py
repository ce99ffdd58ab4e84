"""How do a thousand settlements become one?

Many brokers settle each delivery with a frame of its own. Those frames are alike but for the number; so many of them
mean one settlement of a few stretches, of one where the numbers count up. A router with several receivers behind it
settles in no order at all: sorting costs less than each by itself. Only the scalar codec decides what a frame means;
this module only recognises more of the same.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp10.batch import fields_of
from crescendo.wire.amqp10.frame_pattern import UINT, FramePattern
from crescendo.wire.amqp10.performatives import Disposition
from crescendo.wire.amqp10.serial import SERIAL

Octets = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

_UINT_BYTES = 4
_FIRST, _LAST = 1, 2  # which fields of the performative
_HALF = 0x8000_0000
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16


class DispositionRun(NamedTuple):
    """Where the numbers stand in dispositions that look alike, and what all other bytes must be."""

    head: Octets
    fixed: Octets  # zero where the numbers stand, all bits elsewhere
    first_at: int
    last_at: int | None  # None: each settles one delivery
    disposition: Disposition
    shape: FramePattern

    def one(self, octets: memoryview) -> tuple[int, int] | None:
        """The deliveries that a single frame settles; for one, setting up arrays would cost more than all the rest."""
        numbers = self.shape.read(octets)
        return None if numbers is None else (numbers[0], numbers[-1])

    def run(self, rows: Octets) -> tuple[int, list[tuple[int, int]]]:
        """How many rows from the first are alike, and the stretches of deliveries that they settle together.

        In growing strides: looking at all that has arrived for each that stands alone would take quadratic time.
        """
        count, stride = 0, _FIRST_STRIDE
        while count < len(rows):
            some = rows[count : count + stride]
            strange = (some ^ self.head) & self.fixed
            alike = int(strange.any(axis=1).argmax()) if np.count_nonzero(strange) else len(some)
            count += alike
            if alike < len(some):
                break
            stride *= _STRIDE_GROWTH
        if not count:
            return 0, []
        firsts = self._numbers(rows[:count], self.first_at)
        lasts = firsts if self.last_at is None else self._numbers(rows[:count], self.last_at)
        return count, merged(firsts, lasts)

    def _numbers(self, rows: Octets, at: int) -> Int64s:
        return rows[:, at : at + _UINT_BYTES].view(">u4")[:, 0].astype(np.int64)


def merged(firsts: Int64s, lasts: Int64s) -> list[tuple[int, int]]:
    """The same deliveries as few stretches, in order of their ids, which wrap."""
    origin = int(firsts[0])
    begins = ((firsts - origin + _HALF) & SERIAL) - _HALF  # as far before or behind the first one
    ends = begins + ((lasts - firsts) & SERIAL)
    if not (begins[1:] == ends[:-1] + 1).all():
        order = begins.argsort(kind="stable")
        begins, ends = begins[order], np.maximum.accumulate(ends[order])
        gaps = np.flatnonzero(begins[1:] > ends[:-1] + 1)
        begins, ends = begins[np.append(0, gaps + 1)], ends[np.append(gaps, len(ends) - 1)]
    else:
        begins, ends = begins[:1], ends[-1:]
    numbers = ((column + origin) & SERIAL for column in (begins, ends))
    return list(zip(*(column.tolist() for column in numbers), strict=True))


def disposition_run(octets: memoryview, disposition: Disposition) -> DispositionRun | None:
    """The layout of a decoded disposition, or None when its numbers are not of full width."""
    numbers = (_FIRST,) if disposition.last is None else (_FIRST, _LAST)
    fields = fields_of(octets, _LAST + 1)
    if numbers[-1] >= len(fields):
        return None
    places = [fields[number] for number in numbers]
    if any(octets[place] != UINT for place in places):
        return None
    fixed = np.full(len(octets), 0xFF, np.uint8)
    for place in places:
        fixed[place + 1 : place + 1 + _UINT_BYTES] = 0
    last_at = places[1] + 1 if len(places) > 1 else None
    whole = bytes(octets)
    shape = FramePattern(whole, [(place + 1, _UINT_BYTES) for place in places])
    return DispositionRun(np.frombuffer(whole, np.uint8), fixed, places[0] + 1, last_at, disposition, shape)
