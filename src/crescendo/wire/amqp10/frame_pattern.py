"""Is this frame the same as an earlier one but for some numbers?

Most frames of a busy connection are: flows and dispositions differ in their counters alone. What they mean was decided
when the first of them was decoded; the next ones need their numbers read, which takes a tenth of the time. All other
bytes must be the same to the last one, those that say how wide a number is too.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

import msgspec

from crescendo.wire.amqp10.batch import fields_of
from crescendo.wire.amqp10.performatives import Flow

T = TypeVar("T")

UINT = 0x70  # the constructor of a number of full width
WIDTHS = {UINT: 4, 0x52: 1}  # by constructor
_FORMATS = {4: "I", 1: "B"}
_COUNTERS = 7  # the first fields of a flow, up to the credit
_KINDS = 8  # of one length; a peer that has more of them has none that are worth remembering


class FramePattern:
    """Frames that are alike but for numbers in the same places."""

    __slots__ = ("_fixed", "_mask", "_numbers", "length")

    def __init__(self, octets: bytes, numbers: Sequence[tuple[int, int]]) -> None:
        """`numbers` says where each begins and how many bytes it has, in order."""
        self.length = len(octets)
        mask = bytearray(b"\xff" * len(octets))
        layout = ">"
        position = 0
        for place, width in numbers:
            layout += f"{place - position}x{_FORMATS[width]}"
            position = place + width
            mask[place:position] = bytes(width)
        # All of the frame as one large number: whether the rest of it is the same takes one operation.
        self._mask = int.from_bytes(mask, "little")
        self._fixed = int.from_bytes(octets, "little") & self._mask
        self._numbers = Struct(layout)

    def read(self, octets: bytes | memoryview) -> tuple[int, ...] | None:
        """The numbers of a frame, None when it is not of this shape."""
        if len(octets) != self.length or int.from_bytes(octets, "little") & self._mask != self._fixed:
            return None
        return self._numbers.unpack_from(octets)


class PatternMemory(Generic[T]):
    """What was learnt of frames of each length, for as long as it is little."""

    __slots__ = ("_by_length", "recall")

    def __init__(self) -> None:
        self._by_length: dict[int, T] = {}
        self.recall = self._by_length.get  # by length; asked for every frame, so no call stands in between

    def learn(self, length: int, shape: T) -> None:
        if len(self._by_length) >= _KINDS:
            self._by_length.clear()
        self._by_length[length] = shape

    def forget(self) -> None:
        self._by_length.clear()


class FlowPattern:
    """Flows that differ in their counters."""

    __slots__ = ("_fields", "_places", "_shape")

    def __init__(self, octets: memoryview, flow: Flow) -> None:
        fields = fields_of(octets, _COUNTERS)
        numbers = {
            number: (place + 1, WIDTHS[octets[place]]) for number, place in enumerate(fields) if octets[place] in WIDTHS
        }
        self._shape = FramePattern(bytes(octets), list(numbers.values()))
        self._places = tuple(numbers)
        self._fields = list(msgspec.structs.astuple(flow))

    def read(self, octets: memoryview) -> Flow | None:
        """The flow in these bytes."""
        numbers = self._shape.read(octets)
        if numbers is None:
            return None
        fields = self._fields
        for place, number in zip(self._places, numbers, strict=True):
            fields[place] = number
        return Flow(*fields)
