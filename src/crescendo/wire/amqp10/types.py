"""Which types does AMQP 1.0 have, and how are their values encoded?

The type system of part 1 of the specification: every primitive, lists, maps, arrays and described values. The Python
type of a value identifies its AMQP type, so that a decoded value is encoded again with the same type.
"""

import struct
import uuid
from typing import Any

from crescendo.wire.amqp10.constructors import (
    EMPTY_LIST,
    NULL,
    Encoder,
    compound,
    encode_binary,
    encode_bool,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
    fixed_width,
    fixed_width_data,
    small_or_full_width,
    variable_width_data,
)


class UByte(int): ...


class UShort(int): ...


class UInt(int): ...


class ULong(int): ...


class Byte(int): ...


class Short(int): ...


class Int(int): ...


class Long(int): ...


class Timestamp(int):
    """Milliseconds since 1970."""


class Float(float): ...


class Char(str): ...


class Symbol(str): ...


class Decimal32(bytes): ...


class Decimal64(bytes): ...


class Decimal128(bytes): ...


class Array(list[Any]):
    """A list whose items share one constructor."""


class Described:
    """A value with a descriptor."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and (self.descriptor, self.value) == (other.descriptor, other.value)

    def __hash__(self) -> int:
        return hash(self.descriptor)

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


def encode(value: Any) -> bytes:
    """Encode one value as small as possible. Plain int, str, float and list mean long, string, double and list."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"AMQP has no type for {type(value).__name__}")
    return encoder(value)


def encode_list(value: list[Any]) -> bytes:
    return encode_items([encode(item) for item in value])


def encode_items(items: list[bytes]) -> bytes:
    """A list of items that are already encoded."""
    return compound(0xC0, len(items), b"".join(items)) if items else EMPTY_LIST


def encode_map(value: dict[Any, Any]) -> bytes:
    body = b"".join(encode(key) + encode(item) for key, item in value.items())
    return compound(0xC1, 2 * len(value), body)


def encode_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def encode_array(value: Array) -> bytes:
    """Encode all items at the full width of their type, because they share one constructor."""
    if not value:
        return compound(0xE0, 0, NULL)
    return compound(0xE0, len(value), _array_items(value))


def _array_items(items: list[Any]) -> bytes:
    """The shared constructor, and the items without it."""
    kinds = {type(item) for item in items}
    if len(kinds) != 1:
        raise TypeError("the items of an array must have one type")
    kind = kinds.pop()
    if kind is Described:
        descriptors = {encode(item.descriptor) for item in items}
        if len(descriptors) != 1:
            raise TypeError("the items of an array must have one descriptor")
        return b"\x00" + descriptors.pop() + _array_items([item.value for item in items])
    if kind not in _WIDE:
        raise TypeError(f"AMQP has no type for {kind.__name__}")
    constructor, encode_data = _WIDE[kind]
    return bytes((constructor,)) + b"".join(encode_data(item) for item in items)


_ENCODERS: dict[type, Encoder] = {
    type(None): lambda _: NULL,
    bool: encode_bool,
    UByte: fixed_width(0x50, ">B"),
    UShort: fixed_width(0x60, ">H"),
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: fixed_width(0x51, ">b"),
    Short: fixed_width(0x61, ">h"),
    Int: small_or_full_width(0x54, 0x71, ">i", -128, 127),
    Long: small_or_full_width(0x55, 0x81, ">q", -128, 127),
    int: small_or_full_width(0x55, 0x81, ">q", -128, 127),
    Timestamp: fixed_width(0x83, ">q"),
    Float: fixed_width(0x72, ">f"),
    float: fixed_width(0x82, ">d"),
    Char: lambda value: b"\x73" + ord(value).to_bytes(4, "big"),
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: encode_list,
    dict: encode_map,
    Array: encode_array,
    Described: encode_described,
}


def _wide_list(value: list[Any]) -> bytes:
    body = b"".join(encode(item) for item in value)
    return struct.pack(">II", len(body) + 4, len(value)) + body


def _wide_map(value: dict[Any, Any]) -> bytes:
    body = b"".join(encode(key) + encode(item) for key, item in value.items())
    return struct.pack(">II", len(body) + 4, 2 * len(value)) + body


def _wide_array(value: Array) -> bytes:
    body = _array_items(value) if value else NULL
    return struct.pack(">II", len(body) + 4, len(value)) + body


_WIDE: dict[type, tuple[int, Encoder]] = {
    type(None): (0x40, lambda _: b""),
    bool: (0x56, lambda value: b"\x01" if value else b"\x00"),
    UByte: (0x50, fixed_width_data(">B")),
    UShort: (0x60, fixed_width_data(">H")),
    UInt: (0x70, fixed_width_data(">I")),
    ULong: (0x80, fixed_width_data(">Q")),
    Byte: (0x51, fixed_width_data(">b")),
    Short: (0x61, fixed_width_data(">h")),
    Int: (0x71, fixed_width_data(">i")),
    Long: (0x81, fixed_width_data(">q")),
    int: (0x81, fixed_width_data(">q")),
    Timestamp: (0x83, fixed_width_data(">q")),
    Float: (0x72, fixed_width_data(">f")),
    float: (0x82, fixed_width_data(">d")),
    Char: (0x73, lambda value: ord(value).to_bytes(4, "big")),
    Decimal32: (0x74, bytes),
    Decimal64: (0x84, bytes),
    Decimal128: (0x94, bytes),
    uuid.UUID: (0x98, lambda value: bytes(value.bytes)),
    bytes: (0xB0, variable_width_data(bytes)),
    str: (0xB1, variable_width_data(str.encode)),
    Symbol: (0xB3, variable_width_data(lambda value: bytes(value, "ascii"))),
    list: (0xD0, _wide_list),
    dict: (0xD1, _wide_map),
    Array: (0xF0, _wide_array),
}
