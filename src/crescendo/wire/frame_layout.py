"""Which frames with a message repeat an earlier one, apart from its numbers, times and body?

A `FrameLayout` knows where the body and the id of a decoded message lie. Frames of the same length whose other bytes
are the same mean the same, so they are rows of one strided view. For protocols whose frames begin with their length in
four bytes: OpenWire and Core. Which bytes may differ is up to the protocol.
"""

from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from crescendo.wire.frame_parts import FramePart, count_matches, part_of

Octets = npt.NDArray[np.uint8]
Shared = TypeVar("Shared")

_LENGTH = 4  # bytes of the length of a frame, and of those of a body
_MAX_LENGTHS = 64
_MAX_LAYOUTS = 4


class LengthField(NamedTuple):
    """Four bytes that depend on the length of the body: what is between them and its end, and a constant."""

    at: int
    added: int = 0


class FrameLayout(NamedTuple, Generic[Shared]):
    """Where the parts of a frame are, and what its message shares with its repetitions."""

    length: int
    head: FramePart
    tail: FramePart
    body: tuple[int, int]
    body_lengths: tuple[LengthField, ...]
    message_id: tuple[int, int]
    shared: Shared

    def matches(self, view: memoryview, start: int, end: int) -> int:
        """How many frames from here on have this layout."""
        return count_matches(self.head, self.tail, self.length, view, start, end)

    def resized(self, length: int) -> "FrameLayout[Shared] | None":
        """The layout of the same message with a longer or shorter body; None if there is none of this length."""
        growth = length - self.length
        body_end, tail_start = self.body[1] + growth, self.tail.start + growth
        octets = bytearray(self.head.words.tobytes())
        if not self.body_lengths or body_end < self.body[0] or len(octets) > length or tail_start < 0:
            return None
        octets[:_LENGTH] = (length - _LENGTH).to_bytes(_LENGTH, "big")
        for at, added in self.body_lengths:
            octets[at : at + _LENGTH] = (body_end - at - _LENGTH + added).to_bytes(_LENGTH, "big")
        id_start, id_end = self.message_id
        moved = growth if id_start >= self.body[1] else 0
        return self._replace(
            length=length,
            head=self.head.with_words(octets),
            tail=self.tail._replace(start=tail_start),
            body=(self.body[0], body_end),
            message_id=(id_start + moved, id_end + moved),
        )

    def bodies(self, view: memoryview, start: int, count: int) -> Octets:
        return self._columns(view, start, count, *self.body)

    def ids(self, view: memoryview, start: int, count: int) -> Octets:
        """The message ids as they are encoded, one per row."""
        return self._columns(view, start, count, *self.message_id)

    def _columns(self, view: memoryview, start: int, count: int, first: int, end: int) -> Octets:
        return np.ndarray((count, end - first), np.uint8, view, start + first, (self.length, 1))


def frame_layout(
    octets: memoryview,
    same: Octets,
    *,
    body: tuple[int, int],
    body_lengths: tuple[LengthField, ...],
    message_id: tuple[int, int],
    shared: Shared,
) -> FrameLayout[Shared]:
    """The layout of this frame; `same` has 0xFF where a repetition must have the same byte, and 0 elsewhere."""
    frame = np.frombuffer(bytes(octets), np.uint8)
    head, tail = part_of(frame, same, 0, body[0]), part_of(frame, same, body[1], len(octets))
    return FrameLayout(len(octets), head, tail, body, body_lengths, message_id, shared)


class KnownLayouts(Generic[Shared]):
    """The layouts of the last messages, by the length of their frames."""

    def __init__(self) -> None:
        self._last: FrameLayout[Shared] | None = None
        self._by_length: dict[int, list[FrameLayout[Shared]]] = {}  # the last ones first

    def match(self, view: memoryview, start: int, end: int) -> tuple[FrameLayout[Shared], int] | None:
        """The layout of the frame that begins here, and how many frames from here on have it."""
        length = _LENGTH + int.from_bytes(view[start : start + _LENGTH], "big")
        for layout in self._by_length.get(length) or self._resized(length):
            if count := layout.matches(view, start, end):
                self.remember(layout)
                return layout, count
        return None

    def remember(self, layout: FrameLayout[Shared]) -> None:
        if self._last is layout:
            return
        self._last = layout
        if layout.length not in self._by_length and len(self._by_length) >= _MAX_LENGTHS:
            self._by_length.clear()
        others = [other for other in self._by_length.get(layout.length, ()) if other is not layout]
        self._by_length[layout.length] = [layout, *others[: _MAX_LAYOUTS - 1]]

    def _resized(self, length: int) -> list[FrameLayout[Shared]]:
        """The layout of the last message with a body for which its frame would have this length."""
        resized = None if self._last is None else self._last.resized(length)
        return [] if resized is None else [resized]
