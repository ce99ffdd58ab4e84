"""Where does a frame begin and end?

Type, channel, size, payload and the end octet (section 4.2.3). This is the scalar code, the oracle for the batch path.
A frame above the agreed size is refused before its bytes arrive.
"""

import struct
from typing import NamedTuple

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.method_table import encode_method
from crescendo.wire.amqp091.methods import Method
from crescendo.wire.amqp091.properties import Properties, encode_header

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME, HEADER_FRAME, BODY_FRAME, HEARTBEAT_FRAME = 1, 2, 3, 8
FRAME_END = 0xCE
FRAME_START = struct.Struct(">BHI")
START_BYTES = FRAME_START.size
OVERHEAD_BYTES = START_BYTES + 1
MIN_FRAME_MAX = 4096

_KINDS = (METHOD_FRAME, HEADER_FRAME, BODY_FRAME, HEARTBEAT_FRAME)
_END = bytes((FRAME_END,))


class Frame(NamedTuple):
    """One frame; its payload is a view of the received bytes."""

    kind: int
    channel: int
    payload: memoryview


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME_START.pack(kind, channel, len(payload)) + payload + _END


HEARTBEAT = encode_frame(HEARTBEAT_FRAME, 0, b"")


def encode_method_frame(channel: int, method: Method) -> bytes:
    return encode_frame(METHOD_FRAME, channel, encode_method(method))


def encode_content(channel: int, method: Method, properties: Properties, body: bytes, frame_max: int) -> bytes:
    """A method with content: its frame, the header, and body frames up to the maximum frame size."""
    room = frame_max - OVERHEAD_BYTES
    frames = [
        encode_method_frame(channel, method),
        encode_frame(HEADER_FRAME, channel, encode_header(len(body), properties)),
    ]
    frames += [encode_frame(BODY_FRAME, channel, body[at : at + room]) for at in range(0, len(body), room)]
    return b"".join(frames)


def frame_length(buffer: memoryview, position: int, frame_max: int) -> int | None:
    """The length of the frame that begins here, or None when its first seven bytes have not arrived."""
    if len(buffer) - position < START_BYTES:
        return None
    kind, _, size = FRAME_START.unpack_from(buffer, position)
    if kind not in _KINDS:
        raise PeerError(f"a frame of unknown type {kind}")
    length: int = size + OVERHEAD_BYTES
    if length > frame_max:
        raise PeerError(f"a frame of {length} bytes; at most {frame_max} are allowed")
    return length


def decode_frame(octets: memoryview) -> Frame:
    """Decode one complete frame."""
    kind, channel, _ = FRAME_START.unpack_from(octets)
    if octets[-1] != FRAME_END:
        raise PeerError(f"a frame that ends with 0x{octets[-1]:02x} instead of 0xce")
    return Frame(kind, channel, octets[START_BYTES:-1])
