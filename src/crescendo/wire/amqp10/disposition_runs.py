"""How do a thousand settlements become one?

Many brokers settle each delivery with a frame of its own, and these frames differ only in the delivery id. A run of
them is one settlement of a few id ranges, or of a single range when the ids are consecutive. A router with several
receivers settles in any order: sorting costs less than handling each id. Only the scalar codec decides what a frame
means; this module only recognises repetitions.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Int64s
from crescendo.wire.amqp10.batch import field_offsets
from crescendo.wire.amqp10.frame_pattern import UINT, FramePattern
from crescendo.wire.amqp10.performatives import Disposition
from crescendo.wire.amqp10.serial import SERIAL_MASK

Octets = npt.NDArray[np.uint8]

_UINT_BYTES = 4
_FIRST, _LAST = 1, 2  # which fields of the performative
_HALF = 0x8000_0000
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16


class DispositionRun(NamedTuple):
    """Where the delivery ids are in a set of similar dispositions, and what all other bytes must be."""

    head: Octets
    fixed: Octets  # zero over the ids, all bits set elsewhere
    first_at: int
    last_at: int | None  # None: each frame settles one delivery
    disposition: Disposition
    pattern: FramePattern

    def read_one(self, octets: memoryview) -> tuple[int, int] | None:
        """The range that a single frame settles. For one frame, arrays would cost more than everything else."""
        numbers = self.pattern.read(octets)
        return None if numbers is None else (numbers[0], numbers[-1])

    def read_rows(self, rows: Octets) -> tuple[int, list[tuple[int, int]]]:
        """How many leading rows match, and the delivery ranges that they settle together.

        Compares in growing strides: comparing everything that has arrived for each unmatched frame would take quadratic
        time.
        """
        count, stride = 0, _FIRST_STRIDE
        while count < len(rows):
            chunk = rows[count : count + stride]
            differs = (chunk ^ self.head) & self.fixed
            matching = int(differs.any(axis=1).argmax()) if np.count_nonzero(differs) else len(chunk)
            count += matching
            if matching < len(chunk):
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
    """The same deliveries as the fewest ranges, in order of their ids, which wrap at 2^32."""
    origin = int(firsts[0])
    begins = ((firsts - origin + _HALF) & SERIAL_MASK) - _HALF  # signed distance from the first one
    ends = begins + ((lasts - firsts) & SERIAL_MASK)
    if not (begins[1:] == ends[:-1] + 1).all():
        order = begins.argsort(kind="stable")
        begins, ends = begins[order], np.maximum.accumulate(ends[order])
        gaps = np.flatnonzero(begins[1:] > ends[:-1] + 1)
        begins, ends = begins[np.append(0, gaps + 1)], ends[np.append(gaps, len(ends) - 1)]
    else:
        begins, ends = begins[:1], ends[-1:]
    numbers = ((column + origin) & SERIAL_MASK for column in (begins, ends))
    return list(zip(*(column.tolist() for column in numbers), strict=True))


def disposition_run(octets: memoryview, disposition: Disposition) -> DispositionRun | None:
    """The pattern of a decoded disposition, or None when its ids are not of full width."""
    numbers = (_FIRST,) if disposition.last is None else (_FIRST, _LAST)
    fields = field_offsets(octets, _LAST + 1)
    if numbers[-1] >= len(fields):
        return None
    offsets = [fields[number] for number in numbers]
    if any(octets[offset] != UINT for offset in offsets):
        return None
    fixed = np.full(len(octets), 0xFF, np.uint8)
    for offset in offsets:
        fixed[offset + 1 : offset + 1 + _UINT_BYTES] = 0
    last_at = offsets[1] + 1 if len(offsets) > 1 else None
    whole = bytes(octets)
    pattern = FramePattern(whole, [(offset + 1, _UINT_BYTES) for offset in offsets])
    return DispositionRun(np.frombuffer(whole, np.uint8), fixed, offsets[0] + 1, last_at, disposition, pattern)
