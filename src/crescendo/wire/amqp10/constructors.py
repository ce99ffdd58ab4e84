"""How are the primitive values of AMQP 1.0 encoded?

The constructors of section 1.6, each followed by its data: a number in its smallest encoding, text and binary after
their length, a list's items after size and count. Knows codes and widths; does not choose the type of a value.
"""

import struct
from collections.abc import Callable
from typing import Any

Encoder = Callable[[Any], bytes]

NULL = b"\x40"
TRUE = b"\x41"
FALSE = b"\x42"
EMPTY_LIST = b"\x45"

_U32 = struct.Struct(">I")


def encode_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return b"\x52" + bytes((value,)) if value < 256 else b"\x70" + value.to_bytes(4, "big")


def encode_ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return b"\x53" + bytes((value,)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def encode_bool(value: bool) -> bytes:
    return TRUE if value else FALSE


def encode_binary(value: bytes) -> bytes:
    return variable_width(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    return variable_width(0xA1, value.encode())


def encode_symbol(value: str) -> bytes:
    return variable_width(0xA3, value.encode("ascii"))


def small_or_full_width(code: int, wide: int, form: str, low: int, high: int) -> Encoder:
    """One octet where the number fits into it, the full width elsewhere."""
    pack = struct.Struct(form).pack

    def encoder(value: Any) -> bytes:
        if low <= value <= high:
            return bytes((code, value & 0xFF))
        return bytes((wide,)) + pack(value)

    return encoder


def fixed_width(code: int, form: str) -> Encoder:
    """Constructor and data, always of full width."""
    pack = struct.Struct(form).pack
    return lambda value: bytes((code,)) + pack(value)


def fixed_width_data(form: str) -> Encoder:
    """The data alone: the items of an array share one constructor."""
    return struct.Struct(form).pack


def variable_width_data(content: Callable[[Any], bytes]) -> Encoder:
    """The data alone, after its length in four octets."""

    def encoder(value: Any) -> bytes:
        octets = content(value)
        return _U32.pack(len(octets)) + octets

    return encoder


def variable_width(code: int, content: bytes) -> bytes:
    """Constructor, length and data."""
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code | 0x10,)) + _U32.pack(len(content)) + content


def compound(code: int, count: int, body: bytes) -> bytes:
    """Constructor, size, count and items."""
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body
