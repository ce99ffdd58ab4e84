"""How are the values inside an MQTT packet written and read?

Numbers, variable byte integers, texts and binary strings (section 1.5 of both specifications). A `Reader` never reads
past the end of its packet: every length that a peer states is checked against the available bytes, and any violation is
a PeerError. Knows no packet types.
"""

import struct

from crescendo.model.errors import ConfigError, PeerError

MAX_VARINT = 268_435_455
MAX_STRING_BYTES = 65_535
_VARINT_BYTES = 4
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


def encode_u16(value: int) -> bytes:
    return _U16.pack(value)


def encode_u32(value: int) -> bytes:
    return _U32.pack(value)


def encode_varint(value: int) -> bytes:
    """Seven bits per byte, lowest first, in as few bytes as possible."""
    if not 0 <= value <= MAX_VARINT:
        raise ConfigError(f"{value} is outside 0 to {MAX_VARINT}, the lengths that MQTT can encode")
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def encode_binary(value: bytes) -> bytes:
    if len(value) > MAX_STRING_BYTES:
        raise ConfigError(f"a text of {len(value)} bytes is longer than the {MAX_STRING_BYTES} that MQTT can encode")
    return _U16.pack(len(value)) + value


def encode_text(value: str) -> bytes:
    if "\0" in value:
        raise ConfigError(f"{value!r} contains the character U+0000, which MQTT forbids")
    try:
        return encode_binary(value.encode())
    except UnicodeEncodeError as err:
        raise ConfigError(f"{value!r} contains a lone surrogate, which MQTT forbids") from err


def read_varint(data: memoryview, position: int, end: int) -> tuple[int, int] | None:
    """A variable byte integer and the position after it; None if its last byte has not arrived.

    Non-minimal encodings are refused: MQTT 5 forbids them and no known implementation writes them.
    """
    value = 0
    for index in range(_VARINT_BYTES):
        if position + index >= end:
            return None
        octet = data[position + index]
        value |= (octet & 0x7F) << (7 * index)
        if octet < 0x80:
            if octet == 0 and index:
                raise PeerError("a length is encoded in more bytes than it needs")
            return value, position + index + 1
    raise PeerError(f"a length takes more than {_VARINT_BYTES} bytes")


class Reader:
    """A cursor over the bytes of one packet."""

    __slots__ = ("_data", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def left(self) -> int:
        return len(self._data) - self.position

    def octet(self) -> int:
        return self.raw(1)[0]

    def u16(self) -> int:
        value: int = _U16.unpack(self.raw(2))[0]
        return value

    def u32(self) -> int:
        value: int = _U32.unpack(self.raw(4))[0]
        return value

    def varint(self) -> int:
        found = read_varint(self._data, self.position, len(self._data))
        if found is None:
            raise PeerError("a packet is truncated")
        value, self.position = found
        return value

    def raw(self, length: int) -> memoryview:
        end = self.position + length
        if end > len(self._data):
            raise PeerError("a packet is truncated, or a length in it exceeds the packet")
        octets = self._data[self.position : end]
        self.position = end
        return octets

    def binary(self) -> bytes:
        return bytes(self.raw(self.u16()))

    def text(self) -> str:
        try:
            text = str(self.raw(self.u16()), "utf-8")
        except UnicodeDecodeError:
            raise PeerError("a text is not UTF-8") from None
        if "\0" in text:
            raise PeerError("a text contains the character U+0000")
        return text

    def rest(self) -> memoryview:
        return self.raw(self.left)

    def finish(self) -> None:
        if self.left:
            raise PeerError(f"a packet has {self.left} bytes after its last field")
