"""How are the properties of a message written?

Names with values, each with a byte for its type; without any, a single byte. They are the last part of a message and
are decoded only when somebody asks for them: the load never does.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.artemis_core.primitives import Reader, encode_name
from crescendo.wire.java_primitives import ABSENT, BYTE, INT, LONG, PRESENT, SHORT, encode_boolean


class PropertyType(IntEnum):
    """The byte before a value."""

    NULL = 0
    BOOLEAN = 2
    BYTE = 3
    BYTES = 4
    SHORT = 5
    INT = 6
    LONG = 7
    FLOAT = 8
    DOUBLE = 9
    STRING = 10
    CHAR = 11


class JavaByte(int):
    """A number that is written as one byte."""


Property = bool | int | float | str | bytes | JavaByte | None
NO_PROPERTIES = ABSENT
_MAX_ENTRIES = 4096
_DOUBLE = struct.Struct(">d")
_NUMBERS: dict[int, struct.Struct] = {
    PropertyType.BYTE: BYTE,
    PropertyType.SHORT: SHORT,
    PropertyType.INT: INT,
    PropertyType.LONG: LONG,
    PropertyType.FLOAT: struct.Struct(">f"),
    PropertyType.DOUBLE: _DOUBLE,
    PropertyType.CHAR: struct.Struct(">H"),
}


def encode_properties(entries: Mapping[str, Property]) -> bytes:
    if not entries:
        return NO_PROPERTIES
    encoded = [encode_name(name) + _encode(value) for name, value in entries.items()]
    return PRESENT + INT.pack(len(encoded)) + b"".join(encoded)


def decode_properties(octets: bytes | memoryview) -> dict[str, Any]:
    """The entries; texts as str, numbers as int or float."""
    reader = Reader(memoryview(octets))
    if not reader.boolean():
        return {}
    count = reader.integer()
    if not 0 <= count <= min(_MAX_ENTRIES, reader.left):
        raise PeerError(f"a message announces {count} properties")
    entries = {}
    for _ in range(count):
        name = reader.name()
        entries[name] = _read(reader)
    if reader.left:
        raise PeerError(f"{reader.left} bytes after the last property of a message")
    return entries


def _encode(value: Property) -> bytes:
    match value:
        case None:
            return bytes((PropertyType.NULL,))
        case bool():
            return bytes((PropertyType.BOOLEAN,)) + encode_boolean(value)
        case JavaByte():
            return bytes((PropertyType.BYTE,)) + BYTE.pack(value)
        case int():
            return bytes((PropertyType.LONG,)) + LONG.pack(value)
        case float():
            return bytes((PropertyType.DOUBLE,)) + _DOUBLE.pack(value)
        case str():
            return bytes((PropertyType.STRING,)) + encode_name(value)
        case bytes():
            return bytes((PropertyType.BYTES,)) + INT.pack(len(value)) + value
    raise ConfigError(f"{value!r} cannot be the value of a property")


def _read(reader: Reader) -> Any:
    kind = reader.byte()
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return number.unpack(reader.raw(number.size))[0]
    match kind:
        case PropertyType.NULL:
            return None
        case PropertyType.BOOLEAN:
            return reader.boolean()
        case PropertyType.STRING:
            return reader.name()
        case PropertyType.BYTES:
            return bytes(reader.binary())
    raise PeerError(f"a property has a value of the unknown type {kind}")
