"""How are AMQP 1.0 values written and read?

The exact scalar codec of the type system (part 1 of the specification): every primitive, lists, maps, arrays and
described values. A decoded value keeps its AMQP type, so encoding it again gives an equal value. Every length that a
peer states is checked against the bytes that are there; whatever is wrong is a PeerError.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from crescendo.model.errors import PeerError

MAX_DEPTH = 32
MAX_EMPTY_ITEMS = 256
"""Items of no width (nulls, trues, zeros in an array) cost a peer nothing to announce, so they are counted.

A frame has room for thousands of such arrays; with this limit all of them together stay in a few megabytes.
"""


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
    """A list whose items are written with one constructor."""


class Described:
    """A value with a descriptor that says what it means."""

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


Encoder = Callable[[Any], bytes]

NULL = b"\x40"
TRUE = b"\x41"
FALSE = b"\x42"
EMPTY_LIST = b"\x45"


def encode(value: Any) -> bytes:
    """Write one value with its smallest encoding. Plain int, str, float and list mean long, string, double, list."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"AMQP has no type for {type(value).__name__}")
    return encoder(value)


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
    return _variable(0xA0, bytes(value))


def encode_string(value: str) -> bytes:
    return _variable(0xA1, value.encode())


def encode_symbol(value: str) -> bytes:
    return _variable(0xA3, value.encode("ascii"))


def encode_list(value: list[Any]) -> bytes:
    return encode_items([encode(item) for item in value])


def encode_items(items: list[bytes]) -> bytes:
    """A list whose items are encoded already."""
    return _compound(0xC0, len(items), b"".join(items)) if items else EMPTY_LIST


def encode_map(value: dict[Any, Any]) -> bytes:
    body = b"".join(encode(key) + encode(item) for key, item in value.items())
    return _compound(0xC1, 2 * len(value), body)


def encode_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


def encode_array(value: Array) -> bytes:
    """All items with the widest encoding of their type, because they share one constructor."""
    if not value:
        return _compound(0xE0, 0, NULL)
    return _compound(0xE0, len(value), _array_items(value))


def _array_items(items: list[Any]) -> bytes:
    """The constructor that all items share, and the items without it."""
    kinds = {type(item) for item in items}
    if len(kinds) != 1:
        raise TypeError("the items of an array have one type")
    kind = kinds.pop()
    if kind is Described:
        descriptors = {encode(item.descriptor) for item in items}
        if len(descriptors) != 1:
            raise TypeError("the items of an array have one descriptor")
        return b"\x00" + descriptors.pop() + _array_items([item.value for item in items])
    if kind not in _WIDE:
        raise TypeError(f"AMQP has no type for {kind.__name__}")
    constructor, width = _WIDE[kind]
    return bytes((constructor,)) + b"".join(width(item) for item in items)


def decode(data: memoryview, position: int = 0, depth: int = 0) -> tuple[Any, int]:
    """Read one value; return it and the position behind it."""
    try:
        code = data[position]
        if code == 0:
            if depth >= MAX_DEPTH:
                raise PeerError(f"values are nested more than {MAX_DEPTH} deep")
            descriptor, position = decode(data, position + 1, depth + 1)
            value, position = decode(data, position, depth + 1)
            return Described(descriptor, value), position
        return _decode_as(code, data, position + 1, depth)
    except (IndexError, struct.error):
        raise PeerError("a value is cut off") from None


def skip(data: memoryview, position: int) -> int:
    """The position behind the value that starts here, without reading it."""
    pending = 1
    try:
        while pending:
            code = data[position]
            position += 1
            category = code >> 4
            if code == 0:
                pending += 1  # a descriptor stands before the value
                continue
            pending -= 1
            if category in _FIXED_WIDTHS:
                position += _FIXED_WIDTHS[category]
            elif category in {0xA, 0xC, 0xE}:
                position += 1 + data[position]
            elif category in {0xB, 0xD, 0xF}:
                position += 4 + _U32.unpack_from(data, position)[0]
            else:
                raise PeerError(f"0x{code:02x} is no AMQP type")
    except (IndexError, struct.error):
        raise PeerError("a value is cut off") from None
    if position > len(data):
        raise PeerError("a value is longer than what holds it")
    return position


_FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_U32 = struct.Struct(">I")


def _variable(code: int, content: bytes) -> bytes:
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code | 0x10,)) + _U32.pack(len(content)) + content


def _compound(code: int, count: int, body: bytes) -> bytes:
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body


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
            raise PeerError("text in a value is not what its type demands") from None
    if code in {0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0}:
        if depth >= MAX_DEPTH:
            raise PeerError(f"values are nested more than {MAX_DEPTH} deep")
        start, end = _extent(code, data, position)
        return _decode_compound(code, data[start:end], depth + 1), end
    raise PeerError(f"0x{code:02x} is no AMQP type")


def _extent(code: int, data: memoryview, position: int) -> tuple[int, int]:
    if code & 0x10:
        start = position + 4
        end = start + int(_U32.unpack_from(data, position)[0])
    else:
        start = position + 1
        end = start + data[position]
    if end > len(data):
        raise PeerError("a value is longer than what holds it")
    return start, end


def _decode_compound(code: int, body: memoryview, depth: int) -> Any:
    if code & 0x10:
        count, position = int(_U32.unpack_from(body, 0)[0]), 4
    else:
        count, position = body[0], 1
    if code & 0xE0 == 0xE0:
        return _decode_array(body, position, count, depth)
    if count > len(body):  # every item takes at least its constructor
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
        raise PeerError("a map has a key that cannot be one") from None


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


def _small(code: int, wide: int, form: str, low: int, high: int) -> Encoder:
    pack = struct.Struct(form).pack

    def encoder(value: Any) -> bytes:
        if low <= value <= high:
            return bytes((code, value & 0xFF))
        return bytes((wide,)) + pack(value)

    return encoder


def _packed(code: int, form: str) -> Encoder:
    pack = struct.Struct(form).pack
    return lambda value: bytes((code,)) + pack(value)


_ENCODERS: dict[type, Encoder] = {
    type(None): lambda _: NULL,
    bool: encode_bool,
    UByte: _packed(0x50, ">B"),
    UShort: _packed(0x60, ">H"),
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: _packed(0x51, ">b"),
    Short: _packed(0x61, ">h"),
    Int: _small(0x54, 0x71, ">i", -128, 127),
    Long: _small(0x55, 0x81, ">q", -128, 127),
    int: _small(0x55, 0x81, ">q", -128, 127),
    Timestamp: _packed(0x83, ">q"),
    Float: _packed(0x72, ">f"),
    float: _packed(0x82, ">d"),
    Char: lambda value: b"\x73" + _U32.pack(ord(value)),
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


def _packing(form: str) -> Encoder:
    return struct.Struct(form).pack


def _sized(content: Callable[[Any], bytes]) -> Encoder:
    def encoder(value: Any) -> bytes:
        octets = content(value)
        return _U32.pack(len(octets)) + octets

    return encoder


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
    UByte: (0x50, _packing(">B")),
    UShort: (0x60, _packing(">H")),
    UInt: (0x70, _packing(">I")),
    ULong: (0x80, _packing(">Q")),
    Byte: (0x51, _packing(">b")),
    Short: (0x61, _packing(">h")),
    Int: (0x71, _packing(">i")),
    Long: (0x81, _packing(">q")),
    int: (0x81, _packing(">q")),
    Timestamp: (0x83, _packing(">q")),
    Float: (0x72, _packing(">f")),
    float: (0x82, _packing(">d")),
    Char: (0x73, lambda value: _U32.pack(ord(value))),
    Decimal32: (0x74, bytes),
    Decimal64: (0x84, bytes),
    Decimal128: (0x94, bytes),
    uuid.UUID: (0x98, lambda value: bytes(value.bytes)),
    bytes: (0xB0, _sized(bytes)),
    str: (0xB1, _sized(str.encode)),
    Symbol: (0xB3, _sized(lambda value: bytes(value, "ascii"))),
    list: (0xD0, _wide_list),
    dict: (0xD1, _wide_map),
    Array: (0xF0, _wide_array),
}
