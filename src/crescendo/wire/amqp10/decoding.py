"""How are AMQP 1.0 values decoded?

The exact scalar decoder of the type system (part 1 of the specification). A decoded value keeps its AMQP type. Every
length from the peer is checked against the bytes that are present; malformed data raises PeerError.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

MAX_DEPTH = 32
MAX_EMPTY_ITEMS = 256
"""Array items of zero width (nulls, trues, zeros) cost a peer no bytes, so their number is limited.

A frame has room for thousands of such arrays; with this limit they take a few megabytes in total.
"""

_FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_U32 = struct.Struct(">I")


def decode(data: memoryview, position: int = 0, depth: int = 0) -> tuple[Any, int]:
    """Decode one value; return it and the position after it."""
    try:
        code = data[position]
        if code == 0:
            if depth >= MAX_DEPTH:
                raise PeerError(f"values are nested more than {MAX_DEPTH} levels deep")
            descriptor, position = decode(data, position + 1, depth + 1)
            value, position = decode(data, position, depth + 1)
            return Described(descriptor, value), position
        return _decode_as(code, data, position + 1, depth)
    except (IndexError, struct.error):
        raise PeerError("a value is truncated") from None


def skip(data: memoryview, position: int) -> int:
    """The position after the value that starts here, without decoding it."""
    pending = 1
    try:
        while pending:
            code = data[position]
            position += 1
            category = code >> 4
            if code == 0:
                pending += 1  # a descriptor comes before the value
                continue
            pending -= 1
            if category in _FIXED_WIDTHS:
                position += _FIXED_WIDTHS[category]
            elif category in {0xA, 0xC, 0xE}:
                position += 1 + data[position]
            elif category in {0xB, 0xD, 0xF}:
                position += 4 + _U32.unpack_from(data, position)[0]
            else:
                raise PeerError(f"0x{code:02x} is not an AMQP type")
    except (IndexError, struct.error):
        raise PeerError("a value is truncated") from None
    if position > len(data):
        raise PeerError("a value extends beyond its container")
    return position


def _decode_as(code: int, data: memoryview, position: int, depth: int) -> tuple[Any, int]:
    fixed = _FIXED.get(code)
    if fixed is not None:
        form, kind = fixed
        value = kind(form.unpack_from(data, position)[0])
        return value, position + form.size
    constant = _CONSTANTS.get(code)
    if constant is not None:
        return constant[0], position
    if code == 0x45:
        return [], position
    variable = _VARIABLE.get(code)
    if variable is not None:
        start, end = _extent(code, data, position)
        try:
            return variable(bytes(data[start:end])), end
        except (UnicodeDecodeError, ValueError):
            raise PeerError("text in a value is not valid for its type") from None
    if code in {0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0}:
        if depth >= MAX_DEPTH:
            raise PeerError(f"values are nested more than {MAX_DEPTH} levels deep")
        start, end = _extent(code, data, position)
        return _decode_compound(code, data[start:end], depth + 1), end
    raise PeerError(f"0x{code:02x} is not an AMQP type")


def _extent(code: int, data: memoryview, position: int) -> tuple[int, int]:
    if code & 0x10:
        start = position + 4
        end = start + int(_U32.unpack_from(data, position)[0])
    else:
        start = position + 1
        end = start + data[position]
    if end > len(data):
        raise PeerError("a value extends beyond its container")
    return start, end


def _decode_compound(code: int, body: memoryview, depth: int) -> Any:
    if code & 0x10:
        count, position = int(_U32.unpack_from(body, 0)[0]), 4
    else:
        count, position = body[0], 1
    if code & 0xE0 == 0xE0:
        return _decode_array(body, position, count, depth)
    if count > len(body):  # an item takes at least its constructor
        raise PeerError("a list announces more items than it has bytes")
    items = []
    for _ in range(count):
        item, position = decode(body, position, depth)
        items.append(item)
    if code & 0x0F == 0:
        return items
    if count % 2:
        raise PeerError("a map has a key without a value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise PeerError("a map has an invalid key") from None


def _decode_array(body: memoryview, position: int, count: int, depth: int) -> Array:
    if not count:
        return Array()
    descriptor: Any = None
    described = body[position] == 0
    if described:
        descriptor, position = decode(body, position + 1, depth)
    code = body[position]
    position += 1
    if count > (MAX_EMPTY_ITEMS if code >> 4 == 0x4 else len(body)):
        raise PeerError("an array announces more items than it has bytes")
    items = Array()
    for _ in range(count):
        item, position = _decode_as(code, body, position, depth)
        items.append(Described(descriptor, item) if described else item)
    return items


def _char(value: int) -> Char:
    try:
        return Char(chr(value))
    except (ValueError, OverflowError):
        raise PeerError("a character is outside Unicode") from None


def _boolean(value: int) -> bool:
    return value != 0


_CONSTANTS: dict[int, tuple[Any]] = {
    0x40: (None,), 0x41: (True,), 0x42: (False,), 0x43: (UInt(0),), 0x44: (ULong(0),),
}  # fmt: skip
_FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Any]]] = {
    0x50: (struct.Struct(">B"), UByte),
    0x51: (struct.Struct(">b"), Byte),
    0x52: (struct.Struct(">B"), UInt),
    0x53: (struct.Struct(">B"), ULong),
    0x54: (struct.Struct(">b"), Int),
    0x55: (struct.Struct(">b"), Long),
    0x56: (struct.Struct(">B"), _boolean),
    0x60: (struct.Struct(">H"), UShort),
    0x61: (struct.Struct(">h"), Short),
    0x70: (_U32, UInt),
    0x71: (struct.Struct(">i"), Int),
    0x72: (struct.Struct(">f"), Float),
    0x73: (_U32, _char),
    0x74: (struct.Struct(">4s"), Decimal32),
    0x80: (struct.Struct(">Q"), ULong),
    0x81: (struct.Struct(">q"), Long),
    0x82: (struct.Struct(">d"), float),
    0x83: (struct.Struct(">q"), Timestamp),
    0x84: (struct.Struct(">8s"), Decimal64),
    0x94: (struct.Struct(">16s"), Decimal128),
    0x98: (struct.Struct(">16s"), lambda octets: uuid.UUID(bytes=octets)),
}
_VARIABLE: dict[int, Callable[[bytes], Any]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: bytes.decode,
    0xB1: bytes.decode,
    0xA3: lambda octets: Symbol(octets.decode("ascii")),
    0xB3: lambda octets: Symbol(octets.decode("ascii")),
}
