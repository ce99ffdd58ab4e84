"""How does a packet become bytes, and bytes a packet?

A packet is a value with its fields in their order; the annotation of a field gives its type and, if it came later, the
version that introduced it. Newer brokers append fields, so what follows the last known field is ignored, as their own
clients do; only messages must fill their packet. Knows no packet by name.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core.messages import (
    CoreMessage,
    MessageSpans,
    encode_headers,
    encode_message,
    read_headers,
    read_message,
)
from crescendo.wire.artemis_core.primitives import (
    Reader,
    encode_name,
    encode_nullable_name,
    encode_nullable_string,
    encode_string,
)
from crescendo.wire.java_primitives import BYTE, INT, LONG, encode_boolean

MAX_NAMES = 65_536
MAX_ROUTING_TYPES = 2


class Since(NamedTuple):
    """The version in which a field appeared; earlier ones leave it out."""

    version: int


OPTIONAL = "optional"
"""A field at the end that may be missing."""
Boolean = Annotated[bool, "boolean"]
Byte = Annotated[int, "byte"]
Int = Annotated[int, "int"]
Long = Annotated[int, "long"]
Name = Annotated[str, "name"]
NullableName = Annotated[str | None, "nullable name"]
String = Annotated[str, "string"]
NullableString = Annotated[str | None, "nullable string"]
OptionalBoolean = Annotated[bool | None, "nullable boolean", OPTIONAL]
OptionalInt = Annotated[int | None, "nullable int", OPTIONAL]
OptionalLong = Annotated[int | None, "nullable long", OPTIONAL]
OptionalName = Annotated[str | None, "nullable name", OPTIONAL]
Names = Annotated[tuple[str, ...], "names"]
RoutingTypes = Annotated[tuple[int, ...], "routing types"]
Content = Annotated[bytes | memoryview, "content"]
Message = Annotated[CoreMessage, "message"]
Headers = Annotated[CoreMessage, "headers"]


class Packet(Struct, frozen=True):
    """A value with a number of its own."""


class PacketReader(Reader):
    """A reader of one packet in one version; it keeps where the parts of a message are."""

    __slots__ = ("spans", "version")

    def __init__(self, data: memoryview, version: int, position: int = 0) -> None:
        super().__init__(data, position)
        self.version = version
        self.spans: MessageSpans | None = None


class FieldSpec(NamedTuple):
    """One field of a packet in one version."""

    name: str
    read: Callable[[PacketReader], Any]
    write: Callable[[Any], bytes]
    optional: bool
    size: int | None  # None: it varies


_TYPES: dict[int, type[Packet]] = {}
_CODES: dict[type[Packet], int] = {}
_PacketType = TypeVar("_PacketType", bound=type[Packet])


def packet(code: int) -> Callable[[_PacketType], _PacketType]:
    """Register a class under its number."""

    def register(cls: _PacketType) -> _PacketType:
        _TYPES[code] = cls
        _CODES[cls] = code
        return cls

    return register


def code_of(cls: type[Packet]) -> int:
    return _CODES[cls]


def encode_fields(value: Packet, version: int) -> bytes:
    given = [(spec, getattr(value, spec.name)) for spec in _specs(type(value), version)]
    while given and given[-1][0].optional and given[-1][1] is None:
        given.pop()
    return b"".join(spec.write(content) for spec, content in given)


def read_packet(reader: PacketReader, code: int) -> Packet:
    """The fields of the packet with this number."""
    cls = _TYPES.get(code)
    if cls is None:
        raise PeerError(f"a packet of the type {code}, which is unknown here")
    specs, end = _specs(cls, reader.version), reader.end
    values = {}
    for number, spec in enumerate(specs):
        if spec.optional and reader.left < (spec.size or 1):
            break
        if spec.name == "message" and spec.size is None:  # it reaches up to the fields after it, which have fixed sizes
            reader.end = end - sum(after.size or 0 for after in specs[number + 1 :])
            values[spec.name] = spec.read(reader)
            reader.end = end
        else:
            values[spec.name] = spec.read(reader)
    return cls(**values)


@cache
def _specs(cls: type[Packet], version: int) -> tuple[FieldSpec, ...]:
    """The fields of a packet in this version, in their order, from its annotations."""
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for name in cls.__struct_fields__:
        marks = hints[name].__metadata__
        if all(mark.version <= version for mark in marks if isinstance(mark, Since)):
            read, write, size = next(_KINDS[mark] for mark in marks if mark in _KINDS)
            found.append(FieldSpec(name, read, write, OPTIONAL in marks, size))
    return tuple(found)


def _read_names(reader: PacketReader) -> tuple[str, ...]:
    count = reader.integer()
    if not 0 <= count <= min(MAX_NAMES, reader.left):
        raise PeerError(f"a packet announces {count} names")
    return tuple(reader.name() for _ in range(count))


def _read_routing_types(reader: PacketReader) -> tuple[int, ...]:
    count = reader.integer()
    if not 0 <= count <= MAX_ROUTING_TYPES:
        raise PeerError(f"a packet announces {count} routing types")
    return tuple(reader.byte() for _ in range(count))


def _nullable(
    read: Callable[[PacketReader], Any], write: Callable[[Any], bytes]
) -> tuple[Callable[[PacketReader], Any], Callable[[Any], bytes], None]:
    """A value after a boolean that says whether there is one."""
    return (
        lambda reader: read(reader) if reader.boolean() else None,
        lambda value: encode_boolean(False) if value is None else encode_boolean(True) + write(value),
        None,
    )


def _read_message(reader: PacketReader) -> CoreMessage:
    message, reader.spans = read_message(reader)
    return message


_KINDS: dict[Any, tuple[Callable[[PacketReader], Any], Callable[[Any], bytes], int | None]] = {
    "boolean": (PacketReader.boolean, encode_boolean, 1),
    "byte": (PacketReader.byte, BYTE.pack, 1),
    "int": (PacketReader.integer, INT.pack, 4),
    "long": (PacketReader.long, LONG.pack, 8),
    "nullable boolean": _nullable(PacketReader.boolean, encode_boolean),
    "nullable int": _nullable(PacketReader.integer, INT.pack),
    "nullable long": _nullable(PacketReader.long, LONG.pack),
    "name": (PacketReader.name, encode_name, None),
    "nullable name": (PacketReader.nullable_name, encode_nullable_name, None),
    "string": (PacketReader.string, encode_string, None),
    "nullable string": (PacketReader.nullable_string, encode_nullable_string, None),
    "names": (_read_names, lambda names: INT.pack(len(names)) + b"".join(map(encode_name, names)), None),
    "routing types": (_read_routing_types, lambda types: INT.pack(len(types)) + bytes(types), None),
    "content": (PacketReader.binary, lambda octets: INT.pack(len(octets)) + bytes(octets), None),
    "message": (_read_message, encode_message, None),
    "headers": (read_headers, encode_headers, None),
}
