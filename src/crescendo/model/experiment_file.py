"""How does a YAML file become an experiment?

Reads the file, completes what may be written more briefly, applies `--set path=value`, and converts the result to the
values of `experiment.py`. A mistake is one sentence with the file, the path in the file and what would be right.
"""

import copy
import re
import unicodedata
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, get_origin

import msgspec
import yaml

from crescendo.model.document_errors import explain, structs_in
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_inputs import check_inputs
from crescendo.model.measurable import check_measurable
from crescendo.model.mlmq_clients import Clients
from crescendo.model.payload import PayloadSize
from crescendo.model.redaction import explain_yaml, override_path
from crescendo.model.suggestions import closest, suggestion
from crescendo.model.units import Extent, format_unit, parse_unit
from crescendo.model.workload import RUN, Group

GROUP_LISTS = ("workload", "clients")
"""The keys whose list may be left out when it would have one element."""


_MAPPINGS = frozenset(
    key.encode_name
    for kind in (Group, Clients)
    for key in msgspec.structs.fields(kind)
    if structs_in(key.type) or get_origin(key.type) is dict or key.type is PayloadSize
)
"""The keys of groups that hold a mapping, so that --set may lead into it."""


_SYSTEMS = ("system.url", "system.kind")
_BOOLEAN, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, where other loaders silently keep the last one. The key `on` is text, not `true`."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in written[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears twice", key.start_mark
                )
            if key.tag == _BOOLEAN:
                key.tag = _TEXT
        return super().construct_mapping(node, deep)


def load_experiment(path: Path, overrides: tuple[str, ...] = (), values: Mapping[str, Any] | None = None) -> Experiment:
    """Read one experiment file, with `--set path=value` and then other values applied before anything is checked."""
    document = read_mapping(path, "name, workload and phases")
    if isinstance(named := document.get("topology"), str):
        document["topology"] = str(path.parent / named)  # it stands beside the experiment, wherever that is run from
    for agent in document["agents"] if isinstance(document.get("agents"), list) else ():
        if isinstance(agent, dict) and isinstance(agent.get("config"), str):
            agent["config"] = str(path.parent / agent["config"])
    return experiment_from(document, overrides, values, source=str(path), default_name=name_of(path))


def read_mapping(path: Path, keys: str) -> dict[str, Any]:
    """The content of a YAML file, which must be a mapping with keys such as these."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: cannot be read: it is a directory; name a file in it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: cannot be read: it is not UTF-8 text") from None
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err
    return parse_mapping(text, str(path), keys)


def parse_mapping(text: str, source: str, keys: str) -> dict[str, Any]:
    """The content of such a file, from its text. `source` is what messages call it."""
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as err:
        raise ConfigError(f"{source}: this is not YAML: {explain_yaml(err)}") from None
    except RecursionError:
        raise ConfigError(f"{source}: it is nested too deeply") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: expected a mapping with keys such as {keys}")
    return document


def experiment_from(
    document: dict[str, Any],
    overrides: tuple[str, ...] = (),
    values: Mapping[str, Any] | None = None,
    *,
    source: str = "experiment",
    default_name: str = "",
) -> Experiment:
    """Build an experiment from the content of a file, and check the files that it names."""
    document = copy.deepcopy({"name": default_name, "workload": [] if "clients" in document else {}, **document})
    unlisted = _list_groups(document)
    for override in overrides:
        _apply_override(document, override)
        unlisted |= _list_groups(document)
    for path, value in (values or {}).items():
        _set(document, path, value)
        unlisted |= _list_groups(document)
    _reject_ambiguous(document, source)
    experiment = _converted(document, source, unlisted)
    _reject_misspelt_placeholders(experiment, source)
    check_inputs(experiment, source)
    check_measurable(experiment, source)
    return experiment


def name_of(path: Path) -> str:
    """The name of an experiment that gives itself none: that of its file, in letters that a directory may have."""
    plain = unicodedata.normalize("NFKD", path.stem).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).lstrip("._-")[:100] or "experiment"


def _reject_ambiguous(document: dict[str, Any], source: str) -> None:
    """A phase of `5` may mean seconds or messages. In recordings of earlier versions it means messages."""
    phases = document.get("phases")
    written = phases.get("measure") if isinstance(phases, dict) else None
    if Extent.is_ambiguous(written) and int(written or 0) > 0:
        raise ConfigError(
            f"{source}: phases.measure: {written} needs a unit: write {written}s for seconds, or "
            f"'{written} messages' for messages per connection"
        )


def _reject_misspelt_placeholders(experiment: Experiment, source: str) -> None:
    """A queue called {rnu} would be the same one for all runs. Other braces may be part of a name."""
    for group in experiment.workload:
        for address in group.addresses:
            for written in re.findall(r"\{(\w+)\}", address):
                if f"{{{written}}}" != RUN and closest(written.lower(), [RUN.strip("{}")]):
                    raise ConfigError(f"{source}: workload.{group.name}.address: {{{written}}}; did you mean {RUN!r}?")


def recorded_experiment(document: dict[str, Any], source: str) -> Experiment:
    """The experiment of a recording. Reads none of the files that it names: they may be gone, or be traps."""
    return _converted(document, source)


def _converted(document: dict[str, Any], source: str, unlisted: frozenset[str] = frozenset()) -> Experiment:
    try:
        return msgspec.convert(document, Experiment, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {explain(str(err), document, Experiment, unlisted)}") from err


def _list_groups(document: dict[str, Any]) -> frozenset[str]:
    """One group may be written without the list around it, and a list of addresses means failover.

    Returns the keys that got their list here.
    """
    unlisted = frozenset(key for key in GROUP_LISTS if isinstance(document.get(key), dict))
    for key in unlisted:
        document[key] = [document[key]]
    for group in document["workload"] if isinstance(document["workload"], list) else ():
        if isinstance(group, dict) and isinstance(group.get("address"), list) and group["address"]:
            group["address"], group["failover"] = group["address"][0], group["address"][1:]
    return unlisted


def to_document(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain values; `experiment_from` turns them back into an equal experiment."""
    document: dict[str, Any] = msgspec.to_builtins(experiment, enc_hook=format_unit)
    if document["checks"] is None:
        del document["checks"]
    for key in ("faults", "agents", "lab"):
        if not document[key]:
            del document[key]  # so that runs without any stay comparable with earlier ones
    return document


def _apply_override(document: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path or path != override_path(override):
        wanted = "write it as path=value, for example --set workload.rate=5000"
        raise ConfigError(f"--set {override_path(override)}: {wanted}")
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as err:
        raise ConfigError(f"--set {path}: the value is not YAML: {explain_yaml(err)}") from None
    _set(document, path, value)


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    keys = path.split(".")
    if path in _SYSTEMS and value is not None:  # another system: what the file says about its own has no meaning
        document["system"] = {}
    targets: list[Any] = [document]
    if keys[0] in GROUP_LISTS and len(keys) > 1:
        groups = document.get(keys[0])
        targets = groups if isinstance(groups, list) else []
        keys = keys[1:]
        named = [group for group in targets if isinstance(group, dict) and group.get("name", "main") == keys[0]]
        if named and len(keys) > 1:
            targets, keys = named, keys[1:]
        elif len(keys) > 1 and targets and keys[0] not in _MAPPINGS:
            names = [str(group.get("name", "main")) for group in targets if isinstance(group, dict)]
            raise ConfigError(f"--set {path}: no group is called {keys[0]!r}; {suggestion(keys[0], names)}")
    for target in targets:
        inner: Any = target
        for key in keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {path}: it does not lead into a mapping")
        inner[keys[-1]] = value
