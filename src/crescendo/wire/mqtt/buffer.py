"""Where do bytes wait between the socket and the codec?

One buffer that is filled behind and read in front. It grows only as fast as bytes arrive, never because a peer
announces a long packet, and moving what is left costs no more than reading it did. Knows nothing of packets.
"""

_FIRST_BYTES = 512 * 1024


class ReceiveBuffer:
    """A stretch of bytes from `start` to `end` in `view`."""

    __slots__ = ("end", "start", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_FIRST_BYTES))
        self.start = 0
        self.end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; at least a quarter of the buffer. Views handed out before are void from here on."""
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
        """`count` bytes have been put into the space."""
        self.end += count

    @property
    def waiting(self) -> int:
        return self.end - self.start
