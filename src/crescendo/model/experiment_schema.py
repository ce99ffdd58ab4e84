"""What does an editor need to know to check an experiment file while it is written?

A JSON Schema of the same values that check a file when it is read, with a description of every key. It accepts what
`experiment_file.py` accepts, except for rules between keys, which a schema cannot express. Reads types, never a file.
"""

import copy
import re
import types
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from crescendo.model.document_errors import structs_in
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import GROUP_LISTS
from crescendo.model.experiment_keys import KEYS, PATHS
from crescendo.model.mlmq_clients import ClientKind, Clients
from crescendo.model.payload import PayloadSize
from crescendo.model.planned_faults import MOMENT_PATTERN, FaultMoment
from crescendo.model.protocols import known_protocols
from crescendo.model.search import Confirmation, Limit, Resolution
from crescendo.model.units import (
    DURATION_PATTERN,
    LINE_RATE_PATTERN,
    SHARE_PATTERN,
    SIZE_PATTERN,
    Duration,
    Extent,
    LineRate,
    Share,
    Size,
    format_unit,
)
from crescendo.model.verdict import Bound
from crescendo.model.workload import Group

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Crescendo experiment"

_NO_DEFAULTS: tuple[Any, ...] = (NODEFAULT, None, [], {})
"""Defaults that would say nothing, or not what happens: without a workload there is one group."""

_SECTION_LINK = re.compile(r"\[([^\]]+)\]\(#[^)]*\)")
_PAGE_LINK = re.compile(r"\[[^\]]+\]\(([\w-]+\.md)[^)]*\)")
_DURATION = {"anyOf": [{"type": "string", "pattern": f"^{DURATION_PATTERN}$"}, {"const": 0}]}
_SIZE = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{SIZE_PATTERN}$"}]}
_BOUND = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*(<=|>=|==|<|>)\s*[0-9]"}]}
_UNITS: dict[type, dict[str, Any]] = {
    Duration: _DURATION,
    Size: _SIZE,
    LineRate: {"type": "string", "pattern": f"^{LINE_RATE_PATTERN}$"},
    Share: {"anyOf": [{"type": "string", "pattern": f"^{SHARE_PATTERN}$"}, {"const": 0}]},
    Extent: {
        "type": "string",
        "pattern": rf"^(?:{DURATION_PATTERN}|[0-9]+\s+messages?)$",
    },
    PayloadSize: {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": f"^~?{SIZE_PATTERN}$"},
            {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["size"], "properties": {
                "size": _SIZE, "weight": {"type": "number", "exclusiveMinimum": 0}}, "additionalProperties": False}},
            {"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}},
             "additionalProperties": False},
        ]
    },
    FaultMoment: {"anyOf": [{"type": "string", "pattern": MOMENT_PATTERN}, {"const": 0}]},
    Bound: _BOUND,
    Limit: _BOUND | {"anyOf": [*_BOUND["anyOf"], {"const": "steady"}]},
    Resolution: {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$"},
    Confirmation: {"type": "string", "pattern": r"^\s*[0-9]+\s+of\s+[0-9]+\s*$"},
}  # fmt: skip
"""How the values that are written in units, or as a sentence, look in a file."""


def experiment_schema() -> dict[str, Any]:
    """The JSON Schema of an experiment file."""
    schema = msgspec.json.schema(_plain_struct(Experiment), schema_hook=lambda kind: copy.deepcopy(_UNITS[kind]))
    definitions = schema["$defs"]
    for kind in _structs():
        _describe(kind, definitions[kind.__name__])
    top = definitions[Experiment.__name__]
    top["required"] = []  # the file's name is the default name
    for key in GROUP_LISTS:
        item = top["properties"][key].pop("items")
        top["properties"][key] = {"anyOf": [item, {"type": "array", "items": item}], **_texts(Experiment, key)}
    address = definitions[Group.__name__]["properties"]["address"]
    del address["type"]
    address["anyOf"] = [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    definitions[Group.__name__]["properties"]["protocol"]["enum"] = list(known_protocols())
    definitions[Clients.__name__]["properties"]["kind"]["enum"] = list(ClientKind)
    return {"$schema": DIALECT, "title": TITLE, **schema}


def keys_table() -> list[str]:
    """The rows of the table of keys in docs/experiment.md."""
    rows = ["| key | what | default |", "|---|---|---|"]
    for prefix, kind in PATHS.items():
        for key, text in KEYS[kind].items():
            default = _default(kind, key)
            shown = "" if default in _NO_DEFAULTS or isinstance(default, dict) else f"`{default}` "
            rows.append(f"| `{prefix}{key}` | {text} | {shown}|")
    return rows


def _describe(kind: type[Struct], definition: dict[str, Any]) -> None:
    definition["description"] = (kind.__doc__ or "").partition("\n\n")[0]
    for key in (field.encode_name for field in msgspec.structs.fields(kind)):
        definition["properties"][key] |= _texts(kind, key)
    if (tag_field := kind.__struct_config__.tag_field) is not None:
        definition["properties"][tag_field]["description"] = definition["description"]


def _texts(kind: type[Struct], key: str) -> dict[str, Any]:
    default = _default(kind, key)
    text = _SECTION_LINK.sub(r"\1 in docs/experiment.md", KEYS[kind][key])
    described = {"description": _PAGE_LINK.sub(r"docs/\1", text)}
    return described if default in _NO_DEFAULTS else {**described, "default": default}


def _default(kind: type[Struct], key: str) -> Any:
    """The default of a key as it would be written; NODEFAULT when the key is required."""
    (field,) = (field for field in msgspec.structs.fields(kind) if field.encode_name == key)
    if field.required:
        return NODEFAULT
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    plain = msgspec.to_builtins(value, enc_hook=format_unit)
    if isinstance(value, Struct):
        return {key: part for key, part in plain.items() if part not in (None, {})}
    if isinstance(value, Size) or (type(value) is float and value.is_integer()):
        return int(plain)
    return plain


@cache
def _plain_struct(kind: type[Struct]) -> type[Struct]:
    """The same struct without its defaults: msgspec's schema cannot write those in units."""
    fields = [
        (
            field.name,
            _plain_type(field.type),
            msgspec.field(default=NODEFAULT if field.required else msgspec.UNSET, name=field.encode_name),
        )
        for field in msgspec.structs.fields(kind)
    ]
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__, fields, kw_only=True, forbid_unknown_fields=True, tag_field=config.tag_field, tag=config.tag
    )


def _plain_type(annotation: Any) -> Any:
    """The type with every struct in it replaced by its plain one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(_plain_type(arguments[0]), *arguments[1:])]
    if origin in {Union, types.UnionType}:
        return reduce(or_, map(_plain_type, arguments))
    if origin in {list, dict}:
        return origin[tuple(map(_plain_type, arguments))]
    return _plain_struct(annotation) if isinstance(annotation, type) and issubclass(annotation, Struct) else annotation


def _structs() -> list[type[Struct]]:
    """The structs that an experiment is made of."""
    found: list[type[Struct]] = [Experiment]
    for struct in found:  # which grows meanwhile
        inner = [one for field in msgspec.structs.fields(struct) for one in structs_in(field.type)]
        found += [one for one in dict.fromkeys(inner) if one not in found]
    return found
