"""How are the simple values inside an OpenWire command written and read?

As Java writes them; before a text or a binary string, a byte says whether there is one. Knows no commands.
"""

from crescendo.model.errors import ConfigError
from crescendo.wire.java_primitives import ABSENT, INT, PRESENT, TEXT_LENGTH, JavaReader, encode_modified_utf8

MAX_TEXT_BYTES = 65_535


def encode_utf(text: str) -> bytes:
    """Java's modified UTF-8, after its length."""
    octets = encode_modified_utf8(text)
    if len(octets) > MAX_TEXT_BYTES:
        raise ConfigError(f"a text of {len(octets)} bytes is longer than the {MAX_TEXT_BYTES} that OpenWire can encode")
    return TEXT_LENGTH.pack(len(octets)) + octets


def encode_text(text: str | None) -> bytes:
    return ABSENT if text is None else PRESENT + encode_utf(text)


def encode_raw_text(octets: bytes | None) -> bytes:
    """A text that is already encoded."""
    return ABSENT if octets is None else PRESENT + TEXT_LENGTH.pack(len(octets)) + octets


def encode_binary(octets: bytes | memoryview | None) -> bytes:
    return ABSENT if octets is None else PRESENT + INT.pack(len(octets)) + octets


class Reader(JavaReader):
    """A cursor over the bytes of one frame."""

    __slots__ = ()

    def text(self) -> str | None:
        return self.utf() if self.boolean() else None

    def raw_text(self) -> bytes | None:
        return bytes(self.raw(self._number(TEXT_LENGTH))) if self.boolean() else None

    def binary(self) -> memoryview | None:
        return self.raw(self.integer()) if self.boolean() else None
