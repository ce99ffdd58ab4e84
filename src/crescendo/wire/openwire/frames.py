"""Where does a frame end, and which command is in it?

A frame is its length in four bytes and one structure. The length is checked before anything waits for the rest. The
order of commands is left to the connection.
"""

from crescendo.model.errors import PeerError
from crescendo.wire.openwire import messages as _registered  # noqa: F401 - registers their types
from crescendo.wire.openwire.control_commands import OpenWireCommand, WireFormatInfo
from crescendo.wire.openwire.structures import FieldSpan, Structure, StructureReader, encode_structure, read_structure

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 65 * 2**20
"""The largest payload of a workload, and room for its destination and properties."""


def encode_frame(command: Structure, version: int) -> bytes:
    octets = encode_structure(command, version)
    return len(octets).to_bytes(LENGTH_BYTES, "big") + octets


def frame_length(buffer: memoryview, start: int, end: int, max_bytes: int) -> int | None:
    """The length of the frame that begins here, with its own four bytes; None if they have not arrived."""
    if end - start < LENGTH_BYTES:
        return None
    length = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
    if not 0 < length <= max_bytes:
        raise PeerError(f"a frame of {length} bytes where {max_bytes} is the limit; is this an OpenWire port?")
    return LENGTH_BYTES + length


def decode_frame(octets: memoryview, version: int, spans: list[FieldSpan] | None = None) -> Structure:
    """The command in a complete frame. If `spans` is given, it receives the position of every field."""
    reader = StructureReader(octets, version, LENGTH_BYTES, spans)
    command = read_structure(reader, (OpenWireCommand, WireFormatInfo))
    if reader.left:
        raise PeerError(f"{reader.left} bytes after the last field of {type(command).__name__}")
    return command
