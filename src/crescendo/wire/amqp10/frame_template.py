"""How is the same thing said again with other numbers?

What a busy connection says most, settlements and flows, differs in its numbers alone. The frame is encoded once by the
scalar codec, with marks where the numbers go; from then on saying it is one call. Numbers always have their full width,
which every peer must understand.
"""

from collections.abc import Callable
from struct import Struct

from crescendo.wire.amqp10.frames import encode_frame
from crescendo.wire.amqp10.performatives import Composite

_NUMBER_BYTES = 4
_FIRST_MARK = 0x7EAD_BEE1


class FrameTemplate:
    """A frame with gaps for numbers."""

    __slots__ = ("_pack", "_pieces")

    def __init__(self, performative: Callable[..., Composite], numbers: int, *, channel: int) -> None:
        """`performative` makes it from so many numbers, which stand in it in this order."""
        marks = [_FIRST_MARK + number for number in range(numbers)]
        octets = encode_frame(performative(*marks), channel=channel)
        pieces, position = [], 0
        for mark in marks:
            place = octets.index(mark.to_bytes(_NUMBER_BYTES, "big"), position)
            pieces.append(octets[position:place])
            position = place + _NUMBER_BYTES
        rest = octets[position:]
        self._pack = Struct(">" + "".join(f"{len(piece)}sI" for piece in pieces) + f"{len(rest)}s").pack
        self._pieces = (*pieces, rest)

    def two(self, one: int, other: int) -> bytes:
        """With these two numbers in its gaps."""
        before, between, behind = self._pieces
        return self._pack(before, one, between, other, behind)

    def several(self, *numbers: int) -> bytes:
        """With so many numbers in its gaps."""
        *pieces, rest = self._pieces
        return self._pack(*(part for pair in zip(pieces, numbers, strict=True) for part in pair), rest)
