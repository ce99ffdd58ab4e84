"""How are the properties of a message, or the terms of a connection, written as a map?

A map of names to Java primitives, each value with a byte for its type. Lists and nested maps are read and discarded
within a depth limit; only flat maps are written.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.java_primitives import BYTE, INT, LONG, SHORT, decode_modified_utf8, encode_boolean
from crescendo.wire.openwire.primitives import Reader, encode_utf

Primitive = bool | int | float | str | bytes | None


class PrimitiveType(IntEnum):
    """The byte before a value."""

    NULL = 0
    BOOLEAN = 1
    BYTE = 2
    CHAR = 3
    SHORT = 4
    INT = 5
    LONG = 6
    DOUBLE = 7
    FLOAT = 8
    STRING = 9
    BYTES = 10
    MAP = 11
    LIST = 12
    BIG_STRING = 13


_MAX_DEPTH = 4
_MAX_ENTRIES = 4096
_NUMBERS: dict[int, struct.Struct] = {
    PrimitiveType.BYTE: BYTE,
    PrimitiveType.CHAR: struct.Struct(">H"),
    PrimitiveType.SHORT: SHORT,
    PrimitiveType.INT: INT,
    PrimitiveType.LONG: LONG,
    PrimitiveType.DOUBLE: struct.Struct(">d"),
    PrimitiveType.FLOAT: struct.Struct(">f"),
}


def encode_map(entries: Mapping[str, Primitive]) -> bytes:
    encoded = [encode_utf(name) + _encode(value) for name, value in entries.items()]
    return INT.pack(len(encoded)) + b"".join(encoded)


def decode_map(octets: memoryview | bytes | None) -> dict[str, Any]:
    """The entries; texts as str, numbers as int or float. Maps and lists within the map are returned as None."""
    if octets is None:
        return {}
    reader = Reader(memoryview(octets))
    entries = _read_map(reader, 0)
    if reader.left:
        raise PeerError(f"a map has {reader.left} bytes after its last entry")
    return entries


def _encode(value: Primitive) -> bytes:
    match value:
        case None:
            return bytes((PrimitiveType.NULL,))
        case bool():
            return bytes((PrimitiveType.BOOLEAN,)) + encode_boolean(value)
        case int():
            return bytes((PrimitiveType.LONG,)) + LONG.pack(value)
        case float():
            return bytes((PrimitiveType.DOUBLE,)) + _NUMBERS[PrimitiveType.DOUBLE].pack(value)
        case str():
            return bytes((PrimitiveType.STRING,)) + encode_utf(value)
        case bytes():
            return bytes((PrimitiveType.BYTES,)) + INT.pack(len(value)) + value
    raise ConfigError(f"{value!r} cannot be the value of a property")


def _read_map(reader: Reader, depth: int) -> dict[str, Any]:
    entries = {}
    for _ in range(_count(reader)):
        name = reader.utf()
        entries[name] = _read(reader, depth)
    return entries


def _read(reader: Reader, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise PeerError(f"a map is nested deeper than {_MAX_DEPTH} levels")
    kind = reader.byte()
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return number.unpack(reader.raw(number.size))[0]
    match kind:
        case PrimitiveType.NULL:
            return None
        case PrimitiveType.BOOLEAN:
            return reader.boolean()
        case PrimitiveType.STRING:
            return reader.utf()
        case PrimitiveType.BIG_STRING:
            return decode_modified_utf8(reader.raw(reader.integer()))
        case PrimitiveType.BYTES:
            return bytes(reader.raw(reader.integer()))
        case PrimitiveType.MAP:
            _read_map(reader, depth + 1)
        case PrimitiveType.LIST:
            for _ in range(_count(reader)):
                _read(reader, depth + 1)
        case _:
            raise PeerError(f"a map has a value of the unknown type {kind}")
    return None


def _count(reader: Reader) -> int:
    count = reader.integer()
    if count > _MAX_ENTRIES or count > reader.left:
        raise PeerError(f"a map or a list announces {count} entries")
    return max(count, 0)  # -1: there is no map
