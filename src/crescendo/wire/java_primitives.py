"""How does a Java program write numbers and texts?

Numbers are big-endian and signed. Texts of DataOutputStream are modified UTF-8: NUL takes two bytes, and characters of
other planes a pair of surrogates. A `JavaReader` never reads past the end of its frame: every length that a peer states
is checked against the available bytes, and any violation is a PeerError. Knows no protocol.
"""

import struct

from crescendo.model.errors import ConfigError, PeerError

ABSENT, PRESENT = b"\0", b"\x01"
BYTE = struct.Struct(">b")
SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
LONG = struct.Struct(">q")
TEXT_LENGTH = struct.Struct(">H")
TRUNCATED = "a frame is truncated, or a length in it exceeds its end"
_ENCODED_NUL = b"\xc0\x80"


def encode_boolean(value: bool) -> bytes:
    return PRESENT if value else ABSENT


def encode_utf16(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as err:
        raise ConfigError(f"{text!r} contains a lone surrogate, which cannot be encoded") from err


def encode_modified_utf8(text: str) -> bytes:
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = memoryview(encode_utf16(text, "utf-16-le")).cast("H")
    return b"".join(chr(unit).encode("utf-8", "surrogatepass") if unit else _ENCODED_NUL for unit in units)


def decode_modified_utf8(octets: memoryview) -> str:
    """Modified UTF-8, and plain UTF-8, which some brokers write."""
    return decode_units(bytes(octets).replace(_ENCODED_NUL, b"\0"), "utf-8")


def decode_units(octets: bytes, encoding: str) -> str:
    """Text in an encoding that may hold pairs of surrogates."""
    try:
        text = octets.decode(encoding, "surrogatepass")
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PeerError("a text is not Unicode") from None


class JavaReader:
    """A cursor over the bytes of one frame."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: memoryview, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.position

    def raw(self, length: int) -> memoryview:
        end = self.position + length
        if length < 0 or end > self.end:
            raise PeerError(TRUNCATED)
        octets = self._data[self.position : end]
        self.position = end
        return octets

    def boolean(self) -> bool:
        position = self.position
        if position >= self.end:
            raise PeerError(TRUNCATED)
        self.position = position + 1
        return self._data[position] != 0

    def byte(self) -> int:
        return self._number(BYTE)

    def short(self) -> int:
        return self._number(SHORT)

    def integer(self) -> int:
        return self._number(INT)

    def long(self) -> int:
        return self._number(LONG)

    def utf(self) -> str:
        return decode_modified_utf8(self.raw(self._number(TEXT_LENGTH)))

    def _number(self, form: struct.Struct) -> int:
        position = self.position
        if position + form.size > self.end:
            raise PeerError(TRUNCATED)
        self.position = position + form.size
        value: int = form.unpack_from(self._data, position)[0]
        return value
