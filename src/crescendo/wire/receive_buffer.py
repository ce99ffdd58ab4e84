"""Where do bytes wait between the socket and the codec?

One buffer, filled at the end and read from the front. It grows only as fast as bytes arrive, never because a peer
announces a long packet, and moving the remainder costs no more than reading it did.
Knows nothing about packets or frames.
"""

_FIRST_BYTES = 512 * 1024


class ReceiveBuffer:
    """The unread bytes are those from `start` to `end` in `view`."""

    __slots__ = ("end", "start", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_FIRST_BYTES))
        self.start = 0
        self.end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; at least a quarter of the buffer. Invalidates all views handed out before."""
        size = len(self.view)
        left = self.end - self.start
        if not left:
            self.start = self.end = 0
        elif size - self.end < size // 4:
            rest = bytes(self.view[self.start : self.end])
            if left > size // 2:
                self.view = memoryview(bytearray(2 * size))
            self.view[:left] = rest
            self.start, self.end = 0, left
        return self.view[self.end :]

    def filled(self, count: int) -> None:
        """`count` bytes were written into the space."""
        self.end += count

    @property
    def waiting(self) -> int:
        return self.end - self.start
