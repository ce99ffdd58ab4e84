"""How do bytes become frames, or runs of similar frames?

The receive buffer of a connection and its contents. Takes whole runs where the batch path recognises them and single
frames where it does not. Knows no command: the connection interprets the frames.
"""

from typing import NamedTuple

from crescendo.wire.stomp.batch import WORD, Layout, layout_of
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.frames import MAX_BODY_BYTES, MAX_HEADER_BYTES, LocatedFrame, Reader, skip_line_ends

BUFFER_BYTES = 512 * 1024
_MIN_ROOM = 64 * 1024
_MAX_MISSES = 6


class FrameRun(NamedTuple):
    """Frames that match `layout`, with `spacing` bytes from one start to the next."""

    layout: Layout
    start: int
    frames: int
    spacing: int


class Stream:
    """One direction of a connection: bytes in, frames out."""

    def __init__(
        self,
        *,
        run_id_headers: dict[str, bytes],
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._run_id_headers = run_id_headers  # commands that arrive in runs -> the header that identifies each frame
        self._reader = Reader(max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)
        self.buffer = bytearray(BUFFER_BYTES + WORD)
        self._view = memoryview(self.buffer)
        self._start = 0
        self._end = 0
        self._layout: Layout | None = None
        self._misses = 0
        self._singles_due = 0  # frames to take one by one before the next search for a run

    @property
    def version(self) -> Version:
        return self._reader.version

    def set_version(self, version: Version, run_id_headers: dict[str, bytes]) -> None:
        """Read all further frames in this version."""
        self._reader.version = version
        self._run_id_headers = run_id_headers

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the views of earlier frames."""
        capacity = len(self.buffer) - WORD  # reserve: the last word read may extend past the data
        if self._start == self._end:
            self._start = self._end = 0
        elif capacity - self._end < _MIN_ROOM:
            self._make_room(capacity)
        return self._view[self._end : len(self.buffer) - WORD]

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
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
        located = self._reader.read(self.buffer, self._start, self._end)
        if located is None:
            return None
        run = self._find_run(located)
        if run is not None:
            return run
        self._start = located.end
        return located

    def _find_run(self, located: LocatedFrame) -> FrameRun | None:
        """A run that starts with this frame. After repeated misses the search backs off exponentially."""
        id_header = self._run_id_headers.get(located.frame.command)
        if id_header is None or self._end - located.end < located.end - located.start:
            return None
        if self._singles_due:
            self._singles_due -= 1
            return None
        layout = self._layout = layout_of(self.buffer, located, id_header)
        run = self._take_run(layout) if layout is not None else None
        self._misses = 0 if run is not None else min(self._misses + 1, _MAX_MISSES)
        self._singles_due = 2**self._misses - 1
        return run

    def begins_with(self, octets: bytes) -> bool:
        """Whether the incomplete frame in the buffer begins with these bytes."""
        return self.buffer.startswith(octets, self._start, self._end)

    def _take_run(self, layout: Layout) -> FrameRun | None:
        # A single frame is cheaper to decode than to batch.
        if self._end - self._start < 2 * layout.length:
            return None
        count, spacing = layout.matches(self.buffer, self._start, self._end)
        if count < 2:
            self._layout = None  # the next frames differ; do not compare each of them
            return None
        run = FrameRun(layout, self._start, count, spacing)
        self._start += (count - 1) * spacing + layout.length
        self._reader.forget()
        return run

    def _make_room(self, capacity: int) -> None:
        rest = self._end - self._start
        if rest + _MIN_ROOM > capacity:  # a large message: grow as its bytes arrive, not by its announced length
            grown = bytearray(2 * capacity + WORD)
            grown[:rest] = self._view[self._start : self._end]
            self.buffer = grown
            self._view = memoryview(grown)
        else:
            self._view[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest
