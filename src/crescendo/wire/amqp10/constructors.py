"""Which bytes announce a value, and how wide is what follows?

The constructors of AMQP 1.0's primitive types (section 1.6), each with its content: a number in its smallest encoding,
text and binary behind their length, a list's items behind size and count. Knows codes and widths, not which type a
value has.
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
    return variable(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    return variable(0xA1, value.encode())


def encode_symbol(value: str) -> bytes:
    return variable(0xA3, value.encode("ascii"))


def small(code: int, wide: int, form: str, low: int, high: int) -> Encoder:
    """One octet where the number fits into it, else all of its form."""
    pack = struct.Struct(form).pack

    def encoder(value: Any) -> bytes:
        if low <= value <= high:
            return bytes((code, value & 0xFF))
        return bytes((wide,)) + pack(value)

    return encoder


def packed(code: int, form: str) -> Encoder:
    """Always all of its form."""
    pack = struct.Struct(form).pack
    return lambda value: bytes((code,)) + pack(value)


def packing(form: str) -> Encoder:
    """The content alone: in an array the items share one constructor."""
    return struct.Struct(form).pack


def sized(content: Callable[[Any], bytes]) -> Encoder:
    """The content alone, behind its length in four octets."""

    def encoder(value: Any) -> bytes:
        octets = content(value)
        return _U32.pack(len(octets)) + octets

    return encoder


def variable(code: int, content: bytes) -> bytes:
    """Content behind its length."""
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code | 0x10,)) + _U32.pack(len(content)) + content


def compound(code: int, count: int, body: bytes) -> bytes:
    """Items behind their size and count."""
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body
