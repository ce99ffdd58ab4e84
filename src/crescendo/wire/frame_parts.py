"""Which frames repeat an earlier one in all bytes that matter?

A frame is compared in two parts, before and after its body; a mask says which of their bytes must be the same. Knows
nothing about what the bytes mean: that only fields whose every value is valid are left out of a mask is up to the
protocol.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_WORD = 8
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16


class FramePart(NamedTuple):
    """The bytes before the body, or those after it, and which of them must be the same."""

    start: int
    words: Words
    mask: Words
    number: int  # the same as one long number, for a single frame
    mask_number: int

    def differs(self, view: memoryview, start: int, count: int, spacing: int) -> npt.NDArray[np.bool_]:
        """Which of the frames from here on do not have these bytes."""
        shape, strides = (count, len(self.words)), (spacing, _WORD)
        words: Words = np.ndarray(shape, np.uint64, view, start + self.start, strides)
        return np.asarray(((words ^ self.words) & self.mask).any(axis=1))

    def differs_once(self, view: memoryview, start: int) -> bool:
        """The same for one frame, where arrays would cost more than the comparison."""
        at = start + self.start
        found = int.from_bytes(view[at : at + len(self.words) * _WORD], "little")
        return bool((found ^ self.number) & self.mask_number)

    def with_words(self, octets: bytearray) -> "FramePart":
        """The same part with other bytes."""
        return self._replace(words=np.frombuffer(octets, np.uint64), number=int.from_bytes(octets, "little"))


def count_matches(head: FramePart, tail: FramePart, length: int, view: memoryview, start: int, end: int) -> int:
    """How many frames of this length from here on have both parts.

    Compares in growing strides: if every frame differed from the next, comparing all buffered frames for each of them
    would take quadratic time.
    """
    whole = (end - start) // length
    if not whole or head.differs_once(view, start) or tail.differs_once(view, start):
        return 0
    count, stride = 1, _FIRST_STRIDE
    while count < whole:
        some = min(stride, whole - count)
        at = start + count * length
        differs = head.differs(view, at, some, length)
        differs |= tail.differs(view, at, some, length)
        if differs.any():
            return count + int(differs.argmax())
        count += some
        stride *= _STRIDE_GROWTH
    return count


def part_of(frame: Octets, same: Octets, start: int, end: int) -> FramePart:
    """The bytes from start to end, padded to whole words with bytes of the frame that do not count."""
    size = -(-(end - start) // _WORD) * _WORD
    low = start if start + size <= len(frame) else end - size
    words, mask = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    words[:] = frame[low : low + size]
    mask[start - low : end - low] = same[start:end]
    number, mask_number = int.from_bytes(words.tobytes(), "little"), int.from_bytes(mask.tobytes(), "little")
    return FramePart(low, words.view(np.uint64), mask.view(np.uint64), number, mask_number)
