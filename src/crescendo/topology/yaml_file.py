"""How is a YAML or JSON file of a topology read?

Safely and with limits: no tags, no duplicate keys, at most a few megabytes. A mistake is one sentence with the file.
Does not know what the file means.
"""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from crescendo.model.errors import ConfigError
from crescendo.model.redaction import explain_yaml

MAX_BYTES = 16 * 2**20


_FAST: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FAST):  # type: ignore[valid-type,misc]
    """Rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears twice", key.start_mark
                )
            seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _load(text: str) -> Any:
    # An alias of an alias of an alias can grow to any size when it is written again.
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _FAST)):
        raise yaml.YAMLError("aliases are not allowed; write the values out")
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_BYTES // 2**20} MiB; this is not a topology")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file; `expected` says in an error what should be in it."""
    text = read_text(path)
    try:
        document = json.loads(text) if path.suffix == ".json" else _load(text)
    except yaml.YAMLError as err:
        raise ConfigError(f"{path}: this is not YAML: {explain_yaml(err)}") from None
    except ValueError as err:
        raise ConfigError(f"{path}: this is not JSON: {err}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a mapping with {expected}")
    return document
