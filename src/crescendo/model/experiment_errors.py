"""What is wrong with this experiment file, and what would be right?

msgspec says what it expected; here its message gets the path first, and the closest known key or kind where one was
misspelt. Reads the types of an experiment, never a file.
"""

import difflib
import re
from typing import Any, get_args

import msgspec
from msgspec import Struct

from crescendo.model.experiment import Experiment


def explain(message: str) -> str:
    """msgspec's message, with the path first and the closest known key where one was misspelt."""
    text, _, where = message.partition(" - at `$")
    where = where.rstrip("`").lstrip(".") or "top level"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown:
        known = _keys_at(where)
        close = difflib.get_close_matches(unknown[1], known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"{where}: unknown key {unknown[1]!r}; {hint}"
    missing = re.fullmatch(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{where}: {missing[1]!r} is missing"
    wrong = re.fullmatch(r"Invalid value '(.*)'", text)
    if wrong and (known := _kinds_at(where)):
        close = difflib.get_close_matches(wrong[1], known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return f"{where}: {wrong[1]!r} is not a valid value; {hint}"
    return f"{where}: {text[:1].lower()}{text[1:]}"


def _kinds_at(where: str) -> list[str]:
    """The values of a key that selects the kind of a mapping."""
    parent, _, key = where.rpartition(".")
    configs = [struct.__struct_config__ for struct in _structs_at(parent)]
    return [str(config.tag) for config in configs if config.tag_field == key]


def _keys_at(where: str) -> list[str]:
    names = (item.encode_name for struct in _structs_at(where) for item in msgspec.structs.fields(struct))
    return list(dict.fromkeys(names))


def _structs_at(where: str) -> list[type[Struct]]:
    """The structs that may stand at a path such as `workload[0].mode`; the experiment itself at the top level."""
    structs: list[type[Struct]] = [Experiment]
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
