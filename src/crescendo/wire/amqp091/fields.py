"""How does a value with named fields become the arguments of a method or the properties of a message?

The annotation of each field gives its type (`LongLong`, `ShortString`, `Bit`, ...); one pass at import turns the
annotations into a list of readers and writers. Consecutive bits share octets, as section 4.2.5.2 demands. Knows field
types, not methods.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from crescendo.wire.amqp091.types import (
    Table,
    byte_at,
    decode_long_string,
    decode_short_string,
    decode_table,
    encode_long_string,
    encode_short_string,
    encode_table,
    number_at,
)

Octet = Annotated[int, "octet"]
Short = Annotated[int, "short"]
Long = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortString = Annotated[str, "shortstr"]
LongString = Annotated[bytes, "longstr"]
FieldTable = Annotated[Table, "table"]
Bit = Annotated[bool, "bit"]

Reader = Callable[[memoryview, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]

BITS_PER_OCTET = 8


class FieldType(NamedTuple):
    """How fields of one type are read and written."""

    read: Reader
    write: Writer


class FieldSpec(NamedTuple):
    """A field of a class; `kind` is None for a bit."""

    name: str
    kind: FieldType | None


def _number(form: str) -> FieldType:
    compiled = struct.Struct(form)
    return FieldType(lambda octets, position: number_at(compiled, octets, position), compiled.pack)


FIELD_TYPES = {
    "octet": _number(">B"),
    "short": _number(">H"),
    "long": _number(">I"),
    "longlong": _number(">Q"),
    "shortstr": FieldType(decode_short_string, encode_short_string),
    "longstr": FieldType(decode_long_string, encode_long_string),
    "table": FieldType(decode_table, encode_table),
}


def field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """The fields of a class in their order, from its annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(FieldSpec(name, FIELD_TYPES.get(_kind_name(hint))) for name, hint in hints.items() if _kind_name(hint))


def read_fields(fields: tuple[FieldSpec, ...], octets: memoryview, position: int) -> tuple[list[Any], int]:
    """Decode all fields; return their values and the position after them."""
    values: list[Any] = []
    bits = shift = 0
    for _, kind in fields:
        if kind is None:
            if shift % BITS_PER_OCTET == 0:
                bits, shift = byte_at(octets, position), 0
                position += 1
            values.append(bool(bits >> shift & 1))
            shift += 1
        else:
            shift = 0
            value, position = kind.read(octets, position)
            values.append(value)
    return values, position


def write_fields(fields: tuple[FieldSpec, ...], source: object) -> bytes:
    """Encode the fields of `source` in order."""
    written = bytearray()
    shift = 0
    for name, kind in fields:
        value = getattr(source, name)
        if kind is None:
            if shift % BITS_PER_OCTET == 0:
                written.append(0)
                shift = 0
            written[-1] |= bool(value) << shift
            shift += 1
        else:
            shift = 0
            written += kind.write(value)
    return bytes(written)


def _kind_name(hint: Any) -> str:
    """The name of the type in an annotation, also in `Octet | None`; empty when there is none."""
    for part in (hint, *get_args(hint)):
        for mark in getattr(part, "__metadata__", ()):
            if mark in FIELD_TYPES or mark == "bit":
                return str(mark)
    return ""
