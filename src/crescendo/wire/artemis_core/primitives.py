"""How are the texts inside a packet of Artemis Core written and read?

There are two kinds: names are UTF-16, little-endian, after their length in bytes; strings (user, password, reasons) are
written in one of three ways, depending on how many characters they have. Everything else is as Java writes it. Knows no
packets.
"""

from crescendo.model.errors import PeerError
from crescendo.wire.java_primitives import (
    ABSENT,
    INT,
    PRESENT,
    TEXT_LENGTH,
    TRUNCATED,
    JavaReader,
    decode_units,
    encode_modified_utf8,
    encode_utf16,
)

_SHORT_STRING = 9  # characters; shorter ones are written as UTF-16
_LONG_STRING = 0xFFF  # characters; longer ones are written as names


def encode_name(text: str) -> bytes:
    """A name of an address, a queue or a property, or a selector."""
    octets = encode_utf16(text, "utf-16-le")
    return INT.pack(len(octets)) + octets


def encode_nullable_name(text: str | None) -> bytes:
    return ABSENT if text is None else PRESENT + encode_name(text)


def encode_string(text: str) -> bytes:
    units = encode_utf16(text, "utf-16-be")
    count = len(units) // 2
    if count < _SHORT_STRING:
        return INT.pack(count) + units
    if count < _LONG_STRING:
        octets = encode_modified_utf8(text)
        return INT.pack(count) + TEXT_LENGTH.pack(len(octets)) + octets
    return INT.pack(count) + encode_name(text)


def encode_nullable_string(text: str | None) -> bytes:
    return ABSENT if text is None else PRESENT + encode_string(text)


def decode_name(octets: memoryview | bytes) -> str:
    return decode_units(bytes(octets), "utf-16-le")


class Reader(JavaReader):
    """A cursor over the bytes of one frame."""

    __slots__ = ()

    def binary(self) -> memoryview:
        return self.raw(self.integer())

    def name(self) -> str:
        return decode_name(self.binary())

    def nullable_name(self) -> str | None:
        return self.name() if self.boolean() else None

    def string(self) -> str:
        count = self.integer()
        if count < 0:
            raise PeerError(TRUNCATED)
        if count < _SHORT_STRING:
            return decode_units(bytes(self.raw(2 * count)), "utf-16-be")
        return self.utf() if count < _LONG_STRING else self.name()

    def nullable_string(self) -> str | None:
        return self.string() if self.boolean() else None
