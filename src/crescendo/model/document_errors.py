"""What is wrong with this document, and what would be right?

msgspec says what it expected; here its message gets the path first, as it was written, and the closest known key or
value where one was misspelt. Reads the types of a document, such as an experiment or a campaign, and its content, never
a file.
"""

import enum
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from crescendo.model.name_patterns import IN_WORDS
from crescendo.model.redaction import is_secret
from crescendo.model.suggestions import choice, suggestion
from crescendo.model.units import parse_unit

_NUMBERS = {"float": "a number, such as 5000 or 0.5", "int": "a whole number, such as 3"}
_SHAPES = {
    **_NUMBERS,
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a mapping, such as {key: value}",
}
_EXAMPLES = {"array": "a list of mappings", "object": "a mapping"}
_LONGEST_SHOWN = 60
_ANY_KEY = "[...]"
_OF_MSGSPEC = ("Expected ", "Invalid ", "Object ")
"""How its own messages begin."""

_TYPES = re.compile(r"Expected `(\w+(?: \| \w+)*)`, got `(\w+)`")
_LIMIT = re.compile(r"Expected `(\w+)` (>=|<=|>|<) (\S+)")


def explain(
    message: str, document: Mapping[str, Any], root: type[Struct], unlisted: frozenset[str] = frozenset()
) -> str:
    """msgspec's message about this document of the type `root`, with the path first and what would be right.

    `unlisted` are keys that were written without the list around their one element.
    """
    text, _, where = message.partition(" - at `$")
    where = where.rstrip("`").lstrip(".")
    if _ANY_KEY in where:
        where = _named_key(root, where, document)
    if not where and not text.startswith(_OF_MSGSPEC):
        return text  # a sentence of ours, about several keys
    shown = where or "top level"
    for key in unlisted:
        if where.startswith(f"{key}[0]"):
            shown = key + where.removeprefix(f"{key}[0]")
    return f"{shown}: {_sentence(root, text, where, document)}"


def _sentence(root: type[Struct], text: str, where: str, document: Mapping[str, Any]) -> str:
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        return f"unknown key {unknown[1]!r}; {suggestion(unknown[1], _keys_at(root, where), listed='known keys')}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        return f"{missing[1]!r} is missing"
    if wrong := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", text):
        known = _values_at(root, where) or _kinds_at(root, where)
        if known:
            return f"{wrong[1]!r} is not a valid value; {choice(wrong[1], known)}"
    if found := _TYPES.fullmatch(text):
        wanted = [_shape(root, name, where) for name in found[1].split(" | ") if name != "null"]
        return f"{_shown_value(where, document, found[2])} is not {', or '.join(wanted)}"
    if limit := _LIMIT.fullmatch(text):
        return f"{_shown_value(where, document, limit[1])} is out of range; write a number {limit[2]} {limit[3]}"
    for pattern, words in IN_WORDS.items():
        if pattern in text:
            return f"{_shown_value(where, document, 'this')} is not a valid name; use {words}"
    return f"{text[:1].lower()}{text[1:]}"


def _shape(root: type[Struct], name: str, where: str) -> str:
    """What stands at this path, in words: a mapping or a list of mappings with the first of its keys."""
    known = _SHAPES.get(name, name)
    inner = [struct for annotation in _annotations_at(root, where) for struct in structs_in(annotation)]
    if name not in _EXAMPLES or not inner:
        return known
    keys = " and ".join(item.encode_name for item in msgspec.structs.fields(inner[0])[:2])
    return f"{_EXAMPLES[name]} with keys such as {keys}"


def _shown_value(where: str, document: Mapping[str, Any], otherwise: str) -> str:
    """The value as it was written, if it is short and no secret."""
    value = _value_at(where, document)
    if isinstance(value, str) and "://" not in value and len(value) <= _LONGEST_SHOWN and not is_secret(where):
        return repr(value)
    if isinstance(value, int | float) and not is_secret(where):
        return "true" if value is True else "false" if value is False else str(value)
    if value is None:
        return "nothing"
    return {"str": "text", "array": "a list", "object": "a mapping"}.get(otherwise, otherwise)


def _value_at(where: str, document: Any) -> Any:
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", where):
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and index and int(index) < len(document):
            document = document[int(index)]
        else:
            return None
    return document


def _named_key(root: type[Struct], where: str, document: Mapping[str, Any]) -> str:
    """The path with the key whose value is wrong: msgspec does not say which of a mapping it is."""
    outer = where.partition(_ANY_KEY)[0]
    mapping = _value_at(outer, document)
    for key, value in mapping.items() if isinstance(mapping, dict) else ():
        for kind in _value_types_at(root, outer):
            try:
                msgspec.convert(value, kind, dec_hook=parse_unit)
            except msgspec.ValidationError:
                return f"{outer}.{key}"
    return outer


def _value_types_at(root: type[Struct], where: str) -> list[Any]:
    """The types of the values of the mapping at this path."""
    return [
        get_args(part)[1]
        for annotation in _annotations_at(root, where)
        for part in (annotation, *get_args(annotation))
        if get_origin(part) is dict
    ]


def _values_at(root: type[Struct], where: str) -> list[str]:
    """The values of an enumeration at this path."""
    values: list[str] = []
    for annotation in _annotations_at(root, where):
        for part in (annotation, *get_args(annotation)):
            if isinstance(part, type) and issubclass(part, enum.Enum):
                values += [str(member.value) for member in part]
            elif get_origin(part) is Literal:
                values += [str(value) for value in get_args(part)]
    return list(dict.fromkeys(values))


def _kinds_at(root: type[Struct], where: str) -> list[str]:
    """The values of a key that selects the kind of a mapping."""
    parent, _, key = where.rpartition(".")
    configs = [struct.__struct_config__ for struct in _structs_at(root, parent)]
    return [str(config.tag) for config in configs if config.tag_field == key]


def _keys_at(root: type[Struct], where: str) -> list[str]:
    names = (item.encode_name for struct in _structs_at(root, where) for item in msgspec.structs.fields(struct))
    return list(dict.fromkeys(names))


def _annotations_at(root: type[Struct], where: str) -> list[Any]:
    """The types of the key at this path."""
    parent, _, key = re.sub(r"\[[^\]]*\]", "", where).rpartition(".")
    return [
        item.type
        for struct in _structs_at(root, parent)
        for item in msgspec.structs.fields(struct)
        if item.encode_name == key
    ]


def _structs_at(root: type[Struct], where: str) -> list[type[Struct]]:
    """The structs that may stand at a path such as `workload[0].mode`; the document itself at the top level."""
    structs: list[type[Struct]] = [root]
    for name in re.sub(r"\[[^\]]*\]", "", where).split("."):
        inner = [
            struct
            for outer in structs
            for item in msgspec.structs.fields(outer)
            if item.encode_name == name
            for struct in structs_in(item.type)
        ]
        structs = inner or structs
    return structs


def structs_in(annotation: Any) -> list[type[Struct]]:
    """The structs that a type names: itself, or the members of a union, a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [struct for argument in get_args(annotation) for struct in structs_in(argument)]
