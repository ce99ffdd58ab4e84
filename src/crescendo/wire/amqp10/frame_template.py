"""How is a frame sent again with other numbers?

The most frequent outgoing frames, settlements and flows, differ only in their numbers. The scalar codec encodes such a
frame once, with placeholders for the numbers; from then on encoding it is one call. Numbers always have full width,
which every peer must accept.
"""

from collections.abc import Callable
from struct import Struct

from crescendo.wire.amqp10.frames import encode_frame
from crescendo.wire.amqp10.performatives import Composite

_NUMBER_BYTES = 4
_FIRST_PLACEHOLDER = 0x7EAD_BEE1


class FrameTemplate:
    """A frame with placeholders for numbers."""

    __slots__ = ("_pack", "_segments")

    def __init__(self, performative: Callable[..., Composite], numbers: int, *, channel: int) -> None:
        """`performative` builds the frame from this many numbers, which appear in it in the same order."""
        placeholders = [_FIRST_PLACEHOLDER + number for number in range(numbers)]
        octets = encode_frame(performative(*placeholders), channel=channel)
        segments, position = [], 0
        for placeholder in placeholders:
            offset = octets.index(placeholder.to_bytes(_NUMBER_BYTES, "big"), position)
            segments.append(octets[position:offset])
            position = offset + _NUMBER_BYTES
        rest = octets[position:]
        self._pack = Struct(">" + "".join(f"{len(segment)}sI" for segment in segments) + f"{len(rest)}s").pack
        self._segments = (*segments, rest)

    def fill_two(self, one: int, other: int) -> bytes:
        """The frame with these two numbers."""
        before, between, after = self._segments
        return self._pack(before, one, between, other, after)

    def fill(self, *numbers: int) -> bytes:
        """The frame with these numbers."""
        *segments, rest = self._segments
        return self._pack(*(part for pair in zip(segments, numbers, strict=True) for part in pair), rest)
