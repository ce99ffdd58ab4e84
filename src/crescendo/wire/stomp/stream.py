"""How do bytes become frames, or runs of frames that look alike?

The receive buffer of a connection and what stands in it. Takes whole runs where the batch path recognises them and
single frames where it does not. Knows no command: what a frame means is the connection's business.
"""

from typing import NamedTuple

from crescendo.wire.stomp.batch import WORD, Layout, layout_of
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.frames import MAX_BODY_BYTES, MAX_HEADER_BYTES, LocatedFrame, Reader, skip_line_ends

BUFFER_BYTES = 512 * 1024
_MIN_ROOM = 64 * 1024
_MAX_MISSES = 6


class FrameRun(NamedTuple):
    """Frames that look like `layout`, `apart` bytes from each other."""

    layout: Layout
    start: int
    frames: int
    apart: int


class Stream:
    """One direction of a connection: bytes in, frames out."""

    def __init__(
        self,
        *,
        runs_of: dict[str, bytes],
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._runs_of = runs_of  # commands that come in runs, and the header that tells such frames apart
        self._reader = Reader(max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)
        self.buffer = bytearray(BUFFER_BYTES + WORD)
        self._view = memoryview(self.buffer)
        self._start = 0
        self._end = 0
        self._layout: Layout | None = None
        self._misses = 0
        self._singles_due = 0  # frames to take one by one before runs are looked for again

    @property
    def version(self) -> Version:
        return self._reader.version

    def agree(self, version: Version, runs_of: dict[str, bytes]) -> None:
        """From here on frames are of this version."""
        self._reader.version = version
        self._runs_of = runs_of

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier frames are void from here on."""
        capacity = len(self.buffer) - WORD  # words are read up to here, so they may end behind it
        if self._start == self._end:
            self._start = self._end = 0
        elif capacity - self._end < _MIN_ROOM:
            self._make_room(capacity)
        return self._view[self._end : len(self.buffer) - WORD]

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._end += count

    def next(self) -> LocatedFrame | FrameRun | None:
        """One frame or a run of them, or None when more bytes are needed."""
        self._start = skip_line_ends(self.buffer, self._start, self._end)
        if self._start == self._end:
            return None
        if self._layout is not None:
            run = self._take_run(self._layout)
            if run is not None:
                return run
        placed = self._reader.read(self.buffer, self._start, self._end)
        if placed is None:
            return None
        run = self._look_for_run(placed)
        if run is not None:
            return run
        self._start = placed.end
        return placed

    def _look_for_run(self, placed: LocatedFrame) -> FrameRun | None:
        """A run that begins with this frame. Where there is none for a while, it is looked for less and less often."""
        id_header = self._runs_of.get(placed.frame.command)
        if id_header is None or self._end - placed.end < placed.end - placed.start:
            return None
        if self._singles_due:
            self._singles_due -= 1
            return None
        layout = self._layout = layout_of(self.buffer, placed, id_header)
        run = self._take_run(layout) if layout is not None else None
        self._misses = 0 if run is not None else min(self._misses + 1, _MAX_MISSES)
        self._singles_due = 2**self._misses - 1
        return run

    def begins_with(self, octets: bytes) -> bool:
        """Whether the frame that is still incomplete begins so."""
        return self.buffer.startswith(octets, self._start, self._end)

    def _take_run(self, layout: Layout) -> FrameRun | None:
        # One frame alone is cheaper to read by itself than as an array.
        if self._end - self._start < 2 * layout.length:
            return None
        count, apart = layout.matches(self.buffer, self._start, self._end)
        if count < 2:
            self._layout = None  # the next frames are of another kind; do not compare each of them
            return None
        run = FrameRun(layout, self._start, count, apart)
        self._start += (count - 1) * apart + layout.length
        self._reader.forget()
        return run

    def _make_room(self, capacity: int) -> None:
        rest = self._end - self._start
        if rest + _MIN_ROOM > capacity:  # a large message: grow as it comes, not as it announces itself
            grown = bytearray(2 * capacity + WORD)
            grown[:rest] = self._view[self._start : self._end]
            self.buffer = grown
            self._view = memoryview(grown)
        else:
            self._view[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest
