"""How does a YAML file become an experiment?

Reads the file, completes what may be written more briefly, applies `--set path=value`, and converts the result to the
values of `experiment.py`. A mistake is one sentence with the file, the path in the file and what would be right.
"""

import copy
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_errors import explain
from crescendo.model.units import format_unit, parse_unit
from crescendo.model.urls import HIDDEN, SECRET, is_secret, redact_url_text

GROUP_LISTS = ("workload", "clients")
"""The keys whose list may be left out when it would have one element."""

_SECRET_VALUE = re.compile(
    rf"""((?:{SECRET})[\w."'-]*\s*[=:]\s*)("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,}}]+)""", re.IGNORECASE | re.DOTALL
)


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, where other loaders silently keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in written[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


def load_experiment(path: Path, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read one experiment file, with `--set path=value` applied before anything is checked."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a subclass of SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err
    except yaml.YAMLError as err:
        raise ConfigError(f"{path}: this is not YAML: {_one_line(err)}") from err
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a mapping with keys such as name, workload and phases")
    return experiment_from(document, overrides, source=str(path), default_name=path.stem)


def experiment_from(
    document: dict[str, Any], overrides: tuple[str, ...] = (), *, source: str = "experiment", default_name: str = ""
) -> Experiment:
    """Build an experiment from the content of a file."""
    document = copy.deepcopy({"name": default_name, "workload": [] if "clients" in document else {}, **document})
    _list_groups(document)
    for override in overrides:
        _apply_override(document, override)
        _list_groups(document)
    try:
        return msgspec.convert(document, Experiment, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {explain(str(err))}") from err


def _list_groups(document: dict[str, Any]) -> None:
    """One group may be written without the list around it, and a list of addresses means failover."""
    for key in GROUP_LISTS:
        if isinstance(document.get(key), dict):
            document[key] = [document[key]]
    for group in document["workload"] if isinstance(document["workload"], list) else ():
        if isinstance(group, dict) and isinstance(group.get("address"), list) and group["address"]:
            group["address"], group["failover"] = group["address"][0], group["address"][1:]


def to_document(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain values; `experiment_from` turns them back into an equal experiment."""
    document: dict[str, Any] = msgspec.to_builtins(experiment, enc_hook=format_unit)
    if document["checks"] is None:
        del document["checks"]
    return document


def _apply_override(document: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {override}: write it as path=value, for example --set workload.rate=5000")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise ConfigError(f"--set {override}: the value is not YAML: {_one_line(err)}") from err
    keys = path.split(".")
    targets: list[Any] = [document]
    if keys[0] in GROUP_LISTS and len(keys) > 1:
        groups = document.get(keys[0])
        targets = groups if isinstance(groups, list) else []
        keys = keys[1:]
        named = [group for group in targets if isinstance(group, dict) and group.get("name", "main") == keys[0]]
        if named and len(keys) > 1:
            targets, keys = named, keys[1:]
    for target in targets:
        inner: Any = target
        for key in keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override}: {path} does not lead into a mapping")
        inner[keys[-1]] = value


def redact_override(override: str) -> str:
    """An argument of `--set` without passwords: neither those of URLs, nor the values of keys that name a secret."""
    path, equals, _ = override.partition("=")
    if equals and is_secret(path):
        return f"{path}={HIDDEN}"
    return _SECRET_VALUE.sub(rf"\1{HIDDEN}", redact_url_text(override))


def _one_line(err: Exception) -> str:
    return " ".join(str(err).split())
