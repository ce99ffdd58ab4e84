"""Where does a frame end, and which packet is in it?

A frame is its length in four bytes, the number of its packet, a channel, and the packet. The length is checked before
anything waits for the rest. The order of packets is left to the connection.
"""

import struct

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core import packets as _registered  # noqa: F401 - registers their types
from crescendo.wire.artemis_core.messages import PACKET_HEADER_BYTES
from crescendo.wire.artemis_core.packet_fields import Packet, PacketReader, code_of, encode_fields, read_packet

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 65 * 2**20
"""The largest payload of a workload, and room for its address and properties."""
HANDSHAKE = b"ARTEMIS"
"""What a client sends before its first frame."""
PING_CHANNEL, CREATION_CHANNEL, SESSION_CHANNEL = 0, 1, 10
_HEADER = struct.Struct(">ibq")


def encode_frame(packet: Packet, version: int, channel: int = SESSION_CHANNEL) -> bytes:
    fields = encode_fields(packet, version)
    length = PACKET_HEADER_BYTES - LENGTH_BYTES + len(fields)
    return _HEADER.pack(length, code_of(type(packet)), channel) + fields


def frame_length(buffer: memoryview, start: int, end: int, max_bytes: int) -> int | None:
    """The length of the frame that begins here, with its own four bytes; None if they have not arrived."""
    if end - start < LENGTH_BYTES:
        return None
    length = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
    if not PACKET_HEADER_BYTES - LENGTH_BYTES <= length <= max_bytes:
        raise PeerError(f"a frame of {length} bytes where {max_bytes} is the limit; is this a Core port of Artemis?")
    return LENGTH_BYTES + length


def open_frame(octets: memoryview, version: int) -> tuple[int, PacketReader, int]:
    """The number of the packet in a complete frame, a reader of its fields, and its channel."""
    _, code, channel = _HEADER.unpack_from(octets)
    return code, PacketReader(octets, version, PACKET_HEADER_BYTES), channel


def decode_frame(octets: memoryview, version: int) -> tuple[Packet, int]:
    """The packet in a complete frame, and its channel."""
    code, reader, channel = open_frame(octets, version)
    return read_packet(reader, code), channel
