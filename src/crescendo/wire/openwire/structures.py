"""How does a value with named fields become bytes, in each version of OpenWire?

The annotation of a field gives its type and the version that introduced it; a class is registered with the code that
stands before its fields. Structures nest: each is preceded by a byte that says whether there is one. Without the cache,
which we never agree to, every structure is written out in full. Knows field types, not commands.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.java_primitives import ABSENT, BYTE, INT, LONG, PRESENT, SHORT, encode_boolean
from crescendo.wire.openwire.primitives import Reader, encode_binary, encode_raw_text, encode_text

MAX_DEPTH = 8
MAGIC_BYTES = 8


class Since(NamedTuple):
    """The version in which a field appeared; earlier ones leave it out."""

    version: int


Boolean = Annotated[bool, "boolean"]
Byte = Annotated[int, "byte"]
Int = Annotated[int, "int"]
Long = Annotated[int, "long"]
Text = Annotated[str | None, "text"]
RawText = Annotated[bytes | None, "raw text"]
Binary = Annotated[bytes | None, "binary"]
Magic = Annotated[bytes, "magic"]
Content = Annotated[bytes | memoryview | None, "content"]
"""Like a binary string, but read as a view of the receive buffer."""
NESTED = "nested"
ARRAY = "array"


class Structure(Struct, frozen=True):
    """A value with a code of its own: a command, an identifier or a destination."""


class Throwable(NamedTuple):
    """An exception of the peer. Stack traces are left out, because we never agree to them."""

    class_name: str | None
    message: str | None


Failure = Annotated[Throwable | None, "throwable"]


class FieldSpan(NamedTuple):
    """Where a field was read."""

    owner: type[Structure]
    field: str
    start: int
    end: int


class StructureReader(Reader):
    """A reader of structures in one version; it notes where each field is if `spans` is a list."""

    __slots__ = ("depth", "spans", "version")

    def __init__(self, data: memoryview, version: int, position: int = 0, spans: list[FieldSpan] | None = None) -> None:
        super().__init__(data, position)
        self.version = version
        self.spans = spans
        self.depth = 0


class FieldSpec(NamedTuple):
    """One field of a class in one version."""

    name: str
    read: Callable[[StructureReader], Any]
    write: Callable[[Any, int], bytes]  # value, version


_TYPES: dict[int, type[Structure]] = {}
_CODES: dict[type[Structure], int] = {}
_StructureType = TypeVar("_StructureType", bound=type[Structure])


def structure(code: int) -> Callable[[_StructureType], _StructureType]:
    """Register a class under the code that stands before its fields."""

    def register(cls: _StructureType) -> _StructureType:
        _TYPES[code] = cls
        _CODES[cls] = code
        return cls

    return register


def encode_structure(value: Structure, version: int) -> bytes:
    """The code of a structure and its fields."""
    cls = type(value)
    fields = [spec.write(getattr(value, spec.name), version) for spec in _specs(cls, version)]
    return bytes((_CODES[cls],)) + b"".join(fields)


def encode_nested(value: Structure | None, version: int) -> bytes:
    """A structure within another one."""
    return ABSENT if value is None else PRESENT + encode_structure(value, version)


def read_structure(reader: StructureReader, allowed: tuple[type[Structure], ...] = (Structure,)) -> Structure:
    """The structure that begins here, if it is one of the allowed ones."""
    code = reader.byte()
    cls = _TYPES.get(code)
    if cls is None:
        raise PeerError(f"a structure of the type {code}, which is unknown here")
    if not issubclass(cls, allowed):
        raise PeerError(f"{cls.__name__} where {' or '.join(one.__name__ for one in allowed)} was expected")
    if reader.depth >= MAX_DEPTH:
        raise PeerError(f"structures are nested deeper than {MAX_DEPTH} levels")
    reader.depth += 1
    specs = _specs(cls, reader.version)
    if reader.spans is None:
        found = cls(**{spec.name: spec.read(reader) for spec in specs})
    else:
        values = {}
        for spec in specs:
            start = reader.position
            values[spec.name] = spec.read(reader)
            reader.spans.append(FieldSpan(cls, spec.name, start, reader.position))
        found = cls(**values)
    reader.depth -= 1
    return found


@cache
def _specs(cls: type[Structure], version: int) -> tuple[FieldSpec, ...]:
    """The fields of a class in this version, in their order, from its annotations."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _spec(name, hints[name], dict.fromkeys(hints[name].__metadata__))
        for name in cls.__struct_fields__
        if all(mark.version <= version for mark in hints[name].__metadata__ if isinstance(mark, Since))
    )


def _spec(name: str, hint: Any, marks: dict[Any, None]) -> FieldSpec:
    if NESTED in marks or ARRAY in marks:
        allowed = tuple(part for part in get_args(get_args(hint)[0]) if part is not NoneType)
        if NESTED in marks:
            return FieldSpec(name, lambda reader: _read_nested(reader, allowed), encode_nested)
        return FieldSpec(name, _read_array, _encode_array)
    read, write = next(_SIMPLE[mark] for mark in marks if mark in _SIMPLE)
    return FieldSpec(name, read, write)


def _read_nested(reader: StructureReader, allowed: tuple[type[Structure], ...]) -> Structure | None:
    return read_structure(reader, allowed) if reader.boolean() else None


def _read_array(reader: StructureReader) -> tuple[Structure | None, ...] | None:
    if not reader.boolean():
        return None
    count = reader.short()
    if not 0 <= count <= reader.left:
        raise PeerError(f"an array announces {count} structures")
    return tuple(_read_nested(reader, (Structure,)) for _ in range(count))


def _encode_array(values: tuple[Structure | None, ...] | None, version: int) -> bytes:
    if values is None:
        return ABSENT
    return PRESENT + SHORT.pack(len(values)) + b"".join(encode_nested(value, version) for value in values)


def _read_throwable(reader: StructureReader) -> Throwable | None:
    return Throwable(reader.text(), reader.text()) if reader.boolean() else None


def _encode_throwable(value: Throwable | None) -> bytes:
    return ABSENT if value is None else PRESENT + encode_text(value.class_name) + encode_text(value.message)


def _copied_binary(reader: StructureReader) -> bytes | None:
    octets = reader.binary()
    return None if octets is None else bytes(octets)


_SIMPLE: dict[str, tuple[Callable[[StructureReader], Any], Callable[[Any, int], bytes]]] = {
    "boolean": (StructureReader.boolean, lambda value, _: encode_boolean(value)),
    "byte": (StructureReader.byte, lambda value, _: BYTE.pack(value)),
    "int": (StructureReader.integer, lambda value, _: INT.pack(value)),
    "long": (StructureReader.long, lambda value, _: LONG.pack(value)),
    "magic": (lambda reader: bytes(reader.raw(MAGIC_BYTES)), lambda value, _: value),
    "text": (StructureReader.text, lambda value, _: encode_text(value)),
    "raw text": (StructureReader.raw_text, lambda value, _: encode_raw_text(value)),
    "binary": (_copied_binary, lambda value, _: encode_binary(value)),
    "content": (StructureReader.binary, lambda value, _: encode_binary(value)),
    "throwable": (_read_throwable, lambda value, _: _encode_throwable(value)),
}
