"""The least that can carry a payload over TCP: four bytes of length, one of kind, and the content."""

import struct
from collections import deque

from reference_scenario import BARE, destination_of

FRAME = struct.Struct(">IB")
MESSAGE, SUBSCRIBE = 0, 1
PLAIN = "plain"
PLAIN_DESTINATION = destination_of(PLAIN, BARE)
_READ_BYTES = 64 * 1024


class PlainCodec:
    """Frames of either side, with the interface of the other codecs. An event is a kind and its content."""

    closed = False  # there is no close frame

    def __init__(self) -> None:
        self.outgoing: deque[memoryview] = deque()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._undecoded = b""

    def receive_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._undecoded += self._buffer[:count]

    def next_event(self) -> tuple[int, bytes] | None:
        if len(self._undecoded) < FRAME.size:
            return None
        length, kind = FRAME.unpack_from(self._undecoded)
        end = FRAME.size + length
        if len(self._undecoded) < end:
            return None
        content, self._undecoded = self._undecoded[FRAME.size : end], self._undecoded[end:]
        return kind, content

    def send(self, kind: int, content: bytes) -> None:
        self.outgoing.append(memoryview(FRAME.pack(len(content), kind) + content))
