"""What is a published table, and how do its columns follow from a row class?

A row class is a msgspec Struct: its fields are the columns, in their order. A field annotation is the type of the
column, optional if the column may be null, with the Arrow type if it is not the usual one of that Python type, and a
description. A field that is itself a Struct stands for its columns. The Arrow schema and the Spark DDL are derived from
this. Knows neither Spark nor any particular table.
"""

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pkgutil import resolve_name
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec
import pyarrow as pa
from msgspec import Struct

Int32 = Annotated[int, pa.int32()]

_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_(), list[str]: pa.list_(pa.string())}
_SPARK = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.list_(pa.string()): "ARRAY<STRING>",
}

RowT = TypeVar("RowT", bound=Struct)


@dataclass(frozen=True)
class TableColumn:
    """One column of a published table."""

    name: str
    arrow_type: pa.DataType
    optional: bool  # whether a row may have no value
    description: str

    @property
    def spark_type(self) -> str:
        return _SPARK[self.arrow_type]


@dataclass(frozen=True)
class Table(Generic[RowT]):
    """A name and a row class; optionally, how to compute the table.

    `build` takes the `AnalysisContext` of the pipeline and returns a DataFrame, or None for a table that would be
    empty. It is a function, or, to keep Spark out of this layer, the name of one as in `package.module:function`. A
    table without it is written by the pipeline's job itself. `more_columns` says that the table has columns that are
    known only when it is computed.
    """

    name: str
    row: type[RowT]
    build: str | Callable[[Any], Any] | None = None
    more_columns: bool = False

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        return tuple(_columns(self.row))

    @cached_property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def description(self) -> str:
        return (self.row.__doc__ or "").strip()

    def arrow_schema(self) -> pa.Schema:
        return arrow_schema_of(self.row)

    def spark_ddl(self) -> str:
        """The columns as Spark DDL. Some names have a dot in them, which only backticks make part of a name."""
        return ", ".join(f"`{column.name}` {column.spark_type}" for column in self.columns)

    def to_arrow(self, rows: Sequence[RowT]) -> pa.Table:
        return pa.Table.from_pylist([_flat(msgspec.to_builtins(row)) for row in rows], self.arrow_schema())

    def from_columns(self, rows: list[dict[str, Any]]) -> list[RowT]:
        """Typed rows from rows by column name. Raises msgspec.ValidationError when a value is missing or wrong."""
        return msgspec.convert([_nested(self.row, row) for row in rows], list[self.row])  # type: ignore[name-defined]

    def builder(self) -> Callable[[Any], Any] | None:
        """The function that computes the table; its module is imported now."""
        if not isinstance(self.build, str):
            return self.build
        found: Callable[[Any], Any] = resolve_name(self.build)
        return found


def column_name(field: object) -> str:
    """The column of a field of a row class, as in `column_name(ThroughputRow.second)`. Other values are refused."""
    if not isinstance(field, types.MemberDescriptorType):
        raise TypeError(f"{field!r} is not a field of a row class")
    names = dict(zip(field.__objclass__.__struct_fields__, field.__objclass__.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]
    name: str = names[field.__name__]
    return name


def arrow_schema_of(row: type[Struct]) -> pa.Schema:
    """The columns of a row class, or of a Struct that is part of one."""
    return pa.schema([(column.name, column.arrow_type) for column in _columns(row)])


def _columns(row: type[Struct]) -> Iterator[TableColumn]:
    for field in msgspec.structs.fields(row):
        kind, optional, notes = _resolved(field.type)
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield from _columns(kind)
            continue
        arrow_type = next((note for note in notes if isinstance(note, pa.DataType)), None) or _ARROW[kind]
        description = next((note for note in notes if isinstance(note, str)), "")
        yield TableColumn(field.encode_name, arrow_type, optional, description)


def _resolved(annotation: Any) -> tuple[Any, bool, list[Any]]:
    """The Python type of an annotation, whether it may be None, and what was noted about it, the last note first."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        kind, optional, others = _resolved(inner)
        return kind, optional, [*reversed(notes), *others]
    if get_origin(annotation) in {Union, types.UnionType}:
        (inner,) = (each for each in get_args(annotation) if each is not types.NoneType)
        kind, _, notes = _resolved(inner)
        return kind, True, notes
    return annotation, False, []


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def _nested(row: type[Struct], values: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for field in msgspec.structs.fields(row):
        kind = _resolved(field.type)[0]
        if isinstance(kind, type) and issubclass(kind, Struct):
            nested[field.encode_name] = _nested(kind, values)
        else:
            nested[field.encode_name] = values[field.encode_name]
    return nested
