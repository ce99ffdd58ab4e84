"""How do a method, a header and body frames become one message?

In two ways. When the message is contiguous in the buffer and its body is one frame, `find_whole_message` finds its end
and nothing is copied. Otherwise an `Assembly` takes the frames one by one, so that a body in many frames, or
interleaved with other channels, costs one copy and no rescan.
"""

from typing import NamedTuple, get_args

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.frames import (
    BODY_FRAME,
    FRAME_START,
    HEADER_FRAME,
    START_BYTES,
    Frame,
    frame_length,
)
from crescendo.wire.amqp091.method_table import CODE_BYTES, CODES
from crescendo.wire.amqp091.methods import Content
from crescendo.wire.amqp091.properties import Header, decode_header

MAX_MESSAGE_BYTES = 128 * 2**20

_CODES = frozenset(CODES[method] for method in get_args(Content))
_BODY_SIZE = slice(START_BYTES + 4, START_BYTES + 12)  # in a header frame


class WholeMessage(NamedTuple):
    """Where the frames of a contiguous message end in the buffer."""

    method_end: int
    header_end: int
    end: int


def announces_content(frame: memoryview) -> bool:
    """Whether this method frame is followed by a header and a body."""
    return int.from_bytes(frame[START_BYTES : START_BYTES + CODE_BYTES], "big") in _CODES


def find_whole_message(buffer: memoryview, start: int, method_end: int, frame_max: int) -> WholeMessage | bool:
    """Where the message with this method frame ends; True when it may still arrive contiguous, False when it cannot.

    Reads only the starts of three frames, so that a check after every read is cheap.
    """
    channel = buffer[start + 1 : start + 3]
    length = frame_length(buffer, method_end, frame_max)
    if length is None:
        return True
    if buffer[method_end] != HEADER_FRAME or buffer[method_end + 1 : method_end + 3] != channel:
        return False
    header_end = method_end + length
    if header_end > len(buffer):
        return True
    body_size = int.from_bytes(buffer[method_end:header_end][_BODY_SIZE], "big")
    if body_size == 0:
        return WholeMessage(method_end, header_end, header_end)
    length = frame_length(buffer, header_end, frame_max)
    if length is None:
        return True
    kind, _, size = FRAME_START.unpack_from(buffer, header_end)
    if kind != BODY_FRAME or buffer[header_end + 1 : header_end + 3] != channel or size != body_size:
        return False
    end = header_end + length
    return WholeMessage(method_end, header_end, end) if end <= len(buffer) else True


def checked_header(payload: memoryview) -> Header:
    header = decode_header(payload)
    if header.body_size > MAX_MESSAGE_BYTES:
        raise PeerError(f"a message of {header.body_size} bytes; at most {MAX_MESSAGE_BYTES} are accepted")
    return header


class Assembly:
    """A message of which frames are missing."""

    def __init__(self, method: Content) -> None:
        self.method = method
        self.header: Header | None = None
        self.body = bytearray()

    def take(self, frame: Frame) -> bool:
        """Add one frame; True when it was the last."""
        if self.header is None:
            if frame.kind != HEADER_FRAME:
                raise PeerError("a body without a content header")
            self.header = checked_header(frame.payload)
        elif frame.kind != BODY_FRAME:
            raise PeerError("a second content header for one message")
        else:
            self.body += frame.payload
        if len(self.body) > self.header.body_size:
            raise PeerError(f"a body longer than the {self.header.body_size} bytes announced in its header")
        return len(self.body) == self.header.body_size
