"""Where do received bytes wait until the codec decodes them?

For protocols with a negotiated maximum frame size: one buffer that holds several of the largest frames and never grows.
Unread bytes move to the front only when the next frame might not fit behind them. Does not look inside frames.
"""

_MIN_BYTES = 512 * 1024


class FrameBuffer:
    """Received bytes: those from `start` to `end` in `view` are not decoded yet."""

    __slots__ = ("end", "frame_max", "start", "view")

    def __init__(self, frame_max: int, *, frames: int) -> None:
        self.frame_max = frame_max  # may shrink when the peers negotiate a smaller one
        self.view = memoryview(bytearray(max(_MIN_BYTES, frames * frame_max)))
        self.start = 0
        self.end = 0

    def space(self) -> memoryview:
        """The free part of the buffer, for the next read. Invalidates views that were handed out earlier."""
        if self.start == self.end:
            self.start = self.end = 0
        elif self.start and len(self.view) - self.end < self.frame_max:
            rest = bytes(self.view[self.start : self.end])
            self.view[: len(rest)] = rest
            self.start, self.end = 0, len(rest)
        return self.view[self.end :]

    def filled(self, count: int) -> None:
        """Record that `count` bytes were read into the free part."""
        self.end += count
