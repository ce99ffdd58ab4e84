"""Is this frame the same as an earlier one but for some numbers?

Most frames of a busy connection are: flows and dispositions differ in their counters alone. What they mean was decided
when the first of them was decoded; the next ones need their numbers read, which takes a tenth of the time. All other
bytes must be the same to the last one, those that say how wide a number is too.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Generic, TypeVar

from crescendo.wire.amqp10.batch import fields_of
from crescendo.wire.amqp10.performatives import Flow

T = TypeVar("T")

UINT = 0x70  # the constructor of a number of full width
WIDTHS = {UINT: 4, 0x52: 1}  # by constructor
_FORMATS = {4: "I", 1: "B"}
_COUNTERS = (
    "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle", "delivery_count",
    "link_credit",
)  # fmt: skip
_KINDS = 8  # of one length; a peer that has more of them has none that are worth remembering


class Shape:
    """Frames that are alike but for numbers in the same places."""

    __slots__ = ("_numbers", "_pieces", "length")

    def __init__(self, octets: bytes, numbers: Sequence[tuple[int, int]]) -> None:
        """`numbers` says where each begins and how many bytes it has, in order."""
        self.length = len(octets)
        pieces = []
        layout = ">"
        position = 0
        for place, width in numbers:
            pieces.append((position, octets[position:place]))
            layout += f"{place - position}x{_FORMATS[width]}"
            position = place + width
        self._pieces = (*pieces, (position, octets[position:]))
        self._numbers = Struct(layout)

    def read(self, octets: bytes) -> tuple[int, ...] | None:
        """The numbers of a frame, None when it is not of this shape."""
        if len(octets) != self.length:
            return None
        for at, piece in self._pieces:
            if not octets.startswith(piece, at):
                return None
        return self._numbers.unpack_from(octets)


class Memory(Generic[T]):
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


class FlowShape:
    """Flows that differ in their counters."""

    __slots__ = ("_counters", "_flow", "_shape")

    def __init__(self, octets: memoryview, flow: Flow) -> None:
        fields = fields_of(octets, len(_COUNTERS))
        numbers = {
            name: (place + 1, WIDTHS[octets[place]])
            for name, place in zip(_COUNTERS, fields, strict=False)
            if octets[place] in WIDTHS
        }
        self._shape = Shape(bytes(octets), list(numbers.values()))
        self._counters = tuple(numbers)
        self._flow = flow

    def read(self, octets: bytes) -> Flow | None:
        """The flow in these bytes. It is the same object every time: use it before the next one is read."""
        numbers = self._shape.read(octets)
        if numbers is None:
            return None
        for counter, number in zip(self._counters, numbers, strict=True):
            setattr(self._flow, counter, number)
        return self._flow
