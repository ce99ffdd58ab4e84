"""Does this frame differ from an earlier one only in some numbers?

Most frames of a busy connection do: flows and dispositions differ only in their counters. The scalar codec decoded the
first of them; for the next ones it is enough to read the numbers, which takes a tenth of the time. All other bytes must
be identical, including those that give the width of a number.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

import msgspec

from crescendo.wire.amqp10.batch import field_offsets
from crescendo.wire.amqp10.performatives import Flow

T = TypeVar("T")

UINT = 0x70  # the constructor of a full-width number
WIDTHS = {UINT: 4, 0x52: 1}  # by constructor
_FORMATS = {4: "I", 1: "B"}
_COUNTERS = 7  # the first fields of a flow, up to the credit
_MAX_PATTERNS = 8  # distinct lengths; a peer that uses more has no pattern worth remembering


class FramePattern:
    """Frames that differ only in numbers at fixed offsets."""

    __slots__ = ("_fixed", "_mask", "_numbers", "length")

    def __init__(self, octets: bytes, numbers: Sequence[tuple[int, int]]) -> None:
        """`numbers` holds the offset and the width in bytes of each number, in order."""
        self.length = len(octets)
        mask = bytearray(b"\xff" * len(octets))
        layout = ">"
        position = 0
        for offset, width in numbers:
            layout += f"{offset - position}x{_FORMATS[width]}"
            position = offset + width
            mask[offset:position] = bytes(width)
        # The frame as one large integer: comparing all its fixed bytes takes one operation.
        self._mask = int.from_bytes(mask, "little")
        self._fixed = int.from_bytes(octets, "little") & self._mask
        self._numbers = Struct(layout)

    def read(self, octets: bytes | memoryview) -> tuple[int, ...] | None:
        """The numbers of a frame, or None when it does not match."""
        if len(octets) != self.length or int.from_bytes(octets, "little") & self._mask != self._fixed:
            return None
        return self._numbers.unpack_from(octets)


class PatternMemory(Generic[T]):
    """The last pattern learned for each frame length, for a limited number of lengths."""

    __slots__ = ("_by_length", "recall")

    def __init__(self) -> None:
        self._by_length: dict[int, T] = {}
        self.recall = self._by_length.get  # by length; bound directly, because it is called for every frame

    def learn(self, length: int, pattern: T) -> None:
        if len(self._by_length) >= _MAX_PATTERNS:
            self._by_length.clear()
        self._by_length[length] = pattern

    def forget(self) -> None:
        self._by_length.clear()


class FlowPattern:
    """Flows that differ only in their counters."""

    __slots__ = ("_field_indexes", "_fields", "_pattern")

    def __init__(self, octets: memoryview, flow: Flow) -> None:
        offsets = field_offsets(octets, _COUNTERS)
        numbers = {
            index: (offset + 1, WIDTHS[octets[offset]])
            for index, offset in enumerate(offsets)
            if octets[offset] in WIDTHS
        }
        self._pattern = FramePattern(bytes(octets), list(numbers.values()))
        self._field_indexes = tuple(numbers)
        self._fields = list(msgspec.structs.astuple(flow))

    def read(self, octets: memoryview) -> Flow | None:
        """The flow in these bytes, or None when they do not match."""
        numbers = self._pattern.read(octets)
        if numbers is None:
            return None
        fields = self._fields
        for index, number in zip(self._field_indexes, numbers, strict=True):
            fields[index] = number
        return Flow(*fields)
