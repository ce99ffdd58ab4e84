"""What does each field of summary.json mean?

The tables of docs/summary.md, from the values that are written: each field has its sentence where it is declared. Reads
types, never a file.
"""

import types
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from crescendo.model.document_errors import structs_in
from crescendo.record.summary import Summary


def fields_tables() -> list[str]:
    """One heading and one table for each kind of value, the file itself first."""
    lines = []
    for kind in _structs():
        title = "The file" if kind is Summary else kind.__name__
        lines += [f"## {title}", "", (kind.__doc__ or "").strip().partition("\n")[0], ""]
        lines += ["| field | type | what |", "|---|---|---|"]
        hints = get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            annotated = hints[field.name]
            if get_origin(annotated) is not Annotated:
                raise TypeError(f"{kind.__name__}.{field.name} has no sentence")
            lines.append(f"| `{field.encode_name}` | {_type_name(annotated)} | {get_args(annotated)[1]} |")
        lines.append("")
    return lines


def _structs() -> Iterator[type[Struct]]:
    found: list[type[Struct]] = [Summary]
    for struct in found:  # which grows meanwhile
        yield struct
        inner = [one for field in msgspec.structs.fields(struct) for one in structs_in(field.type)]
        found += [one for one in dict.fromkeys(inner) if one not in found]


def _type_name(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is types.UnionType:
        return " or ".join(map(_type_name, arguments))
    if origin is list:
        return f"list of {_type_name(arguments[0])}"
    if origin is tuple:
        return f"pair of {_type_name(arguments[0])}"
    if origin is dict:
        return f"object, by name: {_type_name(arguments[1])}"
    if kind is type(None):
        return "null"
    if issubclass(kind, Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return {int: "integer", float: "number", bool: "boolean"}.get(kind, "string")
