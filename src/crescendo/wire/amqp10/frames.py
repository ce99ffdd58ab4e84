"""Where does a frame begin and end, and where in a message is its body?

Framing (part 2.3 of the specification) and the sections of a message (part 3.2), as exact scalar code. This is the
oracle for the batch path in `batch.py`, which must always agree with it.
"""

import struct
from typing import NamedTuple

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.constructors import encode_binary
from crescendo.wire.amqp10.decoding import decode, skip
from crescendo.wire.amqp10.performatives import Composite, Header, as_composite, decode_composite, encode_composite

FRAME_HEADER = struct.Struct(">IBBH")
LENGTH = struct.Struct(">I")
HEADER_BYTES = 8
AMQP_FRAME, SASL_FRAME = 0, 1
MIN_MAX_FRAME_SIZE = 512
PROTOCOL_AMQP = b"AMQP\x00\x01\x00\x00"
PROTOCOL_SASL = b"AMQP\x03\x01\x00\x00"

_DATA_SECTION = b"\x00\x53\x75"
_BINARY_CODES = {0xA0: 1, 0xB0: 4}
_HEADER, _BODY_DATA, _BODY_SEQUENCE, _BODY_VALUE = 0x70, 0x75, 0x76, 0x77
_BODIES = (_BODY_DATA, _BODY_SEQUENCE, _BODY_VALUE)
_SECTION_NAMES = {
    "amqp:header:list": _HEADER,
    "amqp:data:binary": _BODY_DATA,
    "amqp:amqp-sequence:list": _BODY_SEQUENCE,
    "amqp:amqp-value:*": _BODY_VALUE,
}


class Frame(NamedTuple):
    """One frame: its performative (None for a heartbeat) and the payload after it."""

    kind: int
    channel: int
    performative: Composite | None
    payload: memoryview


class Body(NamedTuple):
    """Where the body of a message is in its bytes, and whether the message was delivered before."""

    start: int
    length: int
    redelivered: bool


def encode_frame(performative: Composite | None, payload: bytes = b"", *, channel: int = 0, kind: int = 0) -> bytes:
    content = (b"" if performative is None else encode_composite(performative)) + payload
    return FRAME_HEADER.pack(len(content) + HEADER_BYTES, 2, kind, channel) + content


HEARTBEAT = encode_frame(None)


def frame_length(data: memoryview, position: int, max_frame_size: int) -> int | None:
    """The length of the frame that begins here, or None when its length field has not arrived."""
    if len(data) - position < LENGTH.size:
        return None
    length: int = LENGTH.unpack_from(data, position)[0]
    if not HEADER_BYTES <= length <= max_frame_size:
        raise PeerError(f"a frame of {length} bytes; allowed are {HEADER_BYTES} to {max_frame_size}")
    return length


def decode_frame(frame: memoryview) -> Frame:
    """Decode one complete frame."""
    _, offset, kind, channel = FRAME_HEADER.unpack_from(frame)
    start = offset * 4
    if not HEADER_BYTES <= start <= len(frame):
        raise PeerError(f"a frame whose content begins at byte {start}")
    if start == len(frame):
        return Frame(kind, channel, None, frame[start:])
    performative, position = decode_composite(frame, start)
    return Frame(kind, channel, performative, frame[position:])


def encode_message(body: bytes, before: bytes = b"") -> bytes:
    """A message with one data section; `before` holds the encoded sections in front of it."""
    return before + _DATA_SECTION + encode_binary(body)


def find_body(message: memoryview) -> Body:
    """Find the body: the bytes of the data section, or of a value section that holds binary or a string.

    Load generators send one section. A body of several sections is not contiguous and is reported with length 0, as is
    a value of any other type.
    """
    position = 0
    redelivered = False
    found: Body | None = None
    while position < len(message):
        if message[position] != 0:
            raise PeerError("a message section without a descriptor")
        code, section = decode(message, position + 1)
        end = skip(message, section)
        if isinstance(code, str):
            code = _SECTION_NAMES.get(code)
        if code == _HEADER:
            header = as_composite(decode(message, position)[0])
            redelivered = isinstance(header, Header) and bool(header.delivery_count)
        elif code in _BODIES:
            found = Body(end, 0, redelivered) if found else _body_at(message, section, end, redelivered)
        position = end
    return found or Body(len(message), 0, redelivered)


def _body_at(message: memoryview, section: int, end: int, redelivered: bool) -> Body:
    # 0xA0/0xB0 binary and 0xA1/0xB1 string differ in the lowest bit; both have their bytes after a length.
    width = _BINARY_CODES.get(message[section] & 0xFE)
    if width is None:
        return Body(end, 0, redelivered)
    start = section + 1 + width
    return Body(start, end - start, redelivered)
