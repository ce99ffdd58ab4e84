"""Where do the bytes of frames wait between the socket and the codec?

For protocols whose frames have an agreed size: one buffer with room for several of the largest, which never grows. What
is left of it moves to the front only when the next frame might not fit behind it. Knows nothing of what frames hold.
"""

_LEAST_BYTES = 512 * 1024


class FrameBuffer:
    """A stretch of bytes from `start` to `end` in `view`."""

    __slots__ = ("end", "frame_max", "start", "view")

    def __init__(self, frame_max: int, *, frames: int) -> None:
        self.frame_max = frame_max  # may shrink when both sides agree on less
        self.view = memoryview(bytearray(max(_LEAST_BYTES, frames * frame_max)))
        self.start = 0
        self.end = 0

    def space(self) -> memoryview:
        """Where the next bytes go. Views handed out before are void from here on."""
        if self.start == self.end:
            self.start = self.end = 0
        elif self.start and len(self.view) - self.end < self.frame_max:
            rest = bytes(self.view[self.start : self.end])
            self.view[: len(rest)] = rest
            self.start, self.end = 0, len(rest)
        return self.view[self.end :]

    def filled(self, count: int) -> None:
        """`count` bytes have been put into the space."""
        self.end += count
