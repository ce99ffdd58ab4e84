"""How are AMQP 0-9-1 values encoded?

Strings and field tables (section 4.2.5 of the specification), in the dialect of the brokers: where specification and
practice differ ('s' is a 16-bit integer, 'l' a signed 64-bit one, 'x' a byte array), practice wins. Knows values only;
methods and properties give them a meaning. Sizes are checked against the bytes that are present.
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from crescendo.model.errors import PeerError

MAX_SHORT_STRING_BYTES = 255
MAX_DEPTH = 32

Table = dict[str, Any]

_LONG = struct.Struct(">I")
_LONG_LONG = struct.Struct(">Q")
_DECIMAL = struct.Struct(">Bi")


class Timestamp(int):
    """Seconds since 1970, as the peer wrote them: any 64-bit number, not necessarily a valid date."""


def encode_short_string(text: str) -> bytes:
    octets = text.encode()
    if len(octets) > MAX_SHORT_STRING_BYTES:
        raise ValueError(
            f"{text[:40]!r}... takes {len(octets)} bytes; a short string has at most {MAX_SHORT_STRING_BYTES}"
        )
    return bytes((len(octets),)) + octets


def decode_short_string(octets: memoryview, position: int) -> tuple[str, int]:
    start = position + 1
    end = start + byte_at(octets, position)
    return _text(octets, start, end), end


def encode_long_string(octets: bytes) -> bytes:
    return _LONG.pack(len(octets)) + octets


def decode_long_string(octets: memoryview, position: int) -> tuple[bytes, int]:
    end = _long_string_end(octets, position)
    return bytes(octets[position + 4 : end]), end


def encode_table(table: Table) -> bytes:
    return encode_long_string(b"".join(encode_short_string(key) + _encode_value(table[key]) for key in table))


def decode_table(octets: memoryview, position: int, depth: int = 0) -> tuple[Table, int]:
    if depth > MAX_DEPTH:
        raise PeerError(f"a field table nested more than {MAX_DEPTH} levels deep")
    end = _long_string_end(octets, position)
    inside = octets[:end]
    position += 4
    table: Table = {}
    while position < end:
        key, position = decode_short_string(inside, position)
        table[key], position = _decode_value(inside, position, depth)
    return table, end


def byte_at(octets: memoryview, position: int) -> int:
    if position >= len(octets):
        raise PeerError("a field that extends beyond its frame")
    return octets[position]


def number_at(form: struct.Struct, octets: memoryview, position: int) -> tuple[Any, int]:
    """One number and the position after it."""
    end = position + form.size
    if end > len(octets):
        raise PeerError("a field that extends beyond its frame")
    return form.unpack_from(octets, position)[0], end


def _encode_value(value: Any) -> bytes:
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case Timestamp():
            return b"T" + _LONG_LONG.pack(value)
        case int():
            narrow = -(2**31) <= value < 2**31
            return b"I" + struct.pack(">i", value) if narrow else b"l" + struct.pack(">q", value)
        case float():
            return b"d" + struct.pack(">d", value)
        case Decimal():
            return b"D" + _encode_decimal(value)
        case str():
            return b"S" + encode_long_string(value.encode())
        case bytes():
            return b"x" + encode_long_string(value)
        case dict():
            return b"F" + encode_table(value)
        case list() | tuple():
            return b"A" + encode_long_string(b"".join(_encode_value(item) for item in value))
        case _:
            raise TypeError(f"a field table cannot hold {value!r}")


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0 or -exponent > 255:
        raise ValueError(f"a field table cannot hold the decimal {value}")
    unscaled = int("".join(map(str, digits)) or "0")
    return _DECIMAL.pack(-exponent, -unscaled if sign else unscaled)


def _decode_value(octets: memoryview, position: int, depth: int) -> tuple[Any, int]:
    kind = byte_at(octets, position)
    form = _NUMBERS.get(kind)
    if form is not None:
        return number_at(form, octets, position + 1)
    decode = _DECODERS.get(kind)
    if decode is None:
        raise PeerError(f"a field of unknown type {bytes((kind,))!r}")
    return decode(octets, position + 1, depth)


def _decode_array(octets: memoryview, position: int, depth: int) -> tuple[list[Any], int]:
    if depth >= MAX_DEPTH:
        raise PeerError(f"a field array nested more than {MAX_DEPTH} levels deep")
    end = _long_string_end(octets, position)
    inside = octets[:end]
    position += 4
    items = []
    while position < end:
        item, position = _decode_value(inside, position, depth + 1)
        items.append(item)
    return items, end


def _decode_nested(octets: memoryview, position: int, depth: int) -> tuple[Table, int]:
    return decode_table(octets, position, depth + 1)


def _decode_bool(octets: memoryview, position: int, _depth: int) -> tuple[bool, int]:
    return byte_at(octets, position) != 0, position + 1


def _decode_decimal(octets: memoryview, position: int, _depth: int) -> tuple[Decimal, int]:
    end = position + _DECIMAL.size
    if end > len(octets):
        raise PeerError("a field that extends beyond its frame")
    scale, unscaled = _DECIMAL.unpack_from(octets, position)
    return Decimal(unscaled).scaleb(-scale), end


def _decode_timestamp(octets: memoryview, position: int, _depth: int) -> tuple[Timestamp, int]:
    seconds, end = number_at(_LONG_LONG, octets, position)
    return Timestamp(seconds), end


def _decode_text(octets: memoryview, position: int, _depth: int) -> tuple[str | bytes, int]:
    """Long strings are usually text but may hold any bytes: those that are not UTF-8 stay bytes."""
    value, end = decode_long_string(octets, position)
    try:
        return value.decode(), end
    except UnicodeDecodeError:
        return value, end


def _decode_bytes(octets: memoryview, position: int, _depth: int) -> tuple[bytes, int]:
    return decode_long_string(octets, position)


def _decode_void(_octets: memoryview, position: int, _depth: int) -> tuple[None, int]:
    return None, position


def _long_string_end(octets: memoryview, position: int) -> int:
    length, start = number_at(_LONG, octets, position)
    end: int = start + length
    if end > len(octets):
        raise PeerError("a field that extends beyond its frame")
    return end


def _text(octets: memoryview, start: int, end: int) -> str:
    if end > len(octets):
        raise PeerError("a field that extends beyond its frame")
    try:
        return str(octets[start:end], "utf-8")
    except UnicodeDecodeError as err:
        raise PeerError("a name that is not UTF-8") from err


_NUMBERS = {
    ord(kind): struct.Struct(form)
    for kind, form in {
        "b": ">b", "B": ">B", "s": ">h", "U": ">h", "u": ">H", "I": ">i", "i": ">I",
        "l": ">q", "L": ">q", "f": ">f", "d": ">d",
    }.items()
}  # fmt: skip

_DECODERS: dict[int, Callable[[memoryview, int, int], tuple[Any, int]]] = {
    ord("t"): _decode_bool,
    ord("D"): _decode_decimal,
    ord("S"): _decode_text,
    ord("x"): _decode_bytes,
    ord("A"): _decode_array,
    ord("T"): _decode_timestamp,
    ord("F"): _decode_nested,
    ord("V"): _decode_void,
}
