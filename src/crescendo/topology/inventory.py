"""Which machines are there, in which groups, and at which addresses?

Reads an Ansible inventory, INI or YAML: groups, children of groups, variables of hosts and groups, ranges such as
router[1:3]. What Ansible would also do (plugins, scripts, templates in values) is refused or left as text.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from crescendo.model.errors import ConfigError
from crescendo.topology.yaml_file import read_mapping, read_text

_RANGE = re.compile(r"\[([0-9]+|[a-z]):([0-9]+|[a-z])\]")
_MAX_HOSTS = 10_000
_ADDRESS_VARIABLES = ("ansible_host", "ansible_ssh_host")


class InventoryHost(Struct, frozen=True):
    """One machine."""

    name: str
    address: str
    groups: frozenset[str]
    variables: dict[str, Any] = field(default_factory=dict)


class Inventory(Struct, frozen=True):
    """All machines, and the machines of every group with those of its children, in the order of the file."""

    hosts: dict[str, InventoryHost]
    groups: dict[str, tuple[str, ...]]

    def group(self, name: str) -> tuple[str, ...]:
        return self.groups.get(name, ())


class _Group:
    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.children: list[str] = []
        self.variables: dict[str, Any] = {}


class _Builder:
    """Groups as they are written, and what follows from them."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.groups: dict[str, _Group] = {}
        self.variables: dict[str, dict[str, Any]] = {}

    def group(self, name: str) -> _Group:
        return self.groups.setdefault(name, _Group())

    def add_host(self, group: str, pattern: str, variables: dict[str, Any]) -> None:
        for name in _expanded(pattern, self.source):
            if name not in self.group(group).hosts:
                self.group(group).hosts.append(name)
            self.variables.setdefault(name, {}).update(variables)
            if len(self.variables) > _MAX_HOSTS:
                raise ConfigError(f"{self.source}: more than {_MAX_HOSTS:,} hosts")

    def result(self) -> Inventory:
        members = {name: self._members(name, ()) for name in self.groups}
        levels = self._levels()
        inherited: dict[str, dict[str, Any]] = {name: {} for name in self.variables}
        for name in sorted(self.groups, key=lambda group: levels[group]):  # outer groups first: inner ones override
            for host in members[name]:
                inherited[host].update(self.groups[name].variables)
        hosts = {}
        for name, own in self.variables.items():
            variables = inherited[name] | own
            address = next((str(variables[key]) for key in _ADDRESS_VARIABLES if variables.get(key)), name)
            groups = frozenset(group for group, names in members.items() if name in names)
            hosts[name] = InventoryHost(name, address, groups, variables)
        return Inventory(hosts, members)

    def _members(self, name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            raise ConfigError(f"{self.source}: the group {name} is a child of itself: {' > '.join((*path, name))}")
        group = self.groups.get(name)
        if group is None:
            raise ConfigError(f"{self.source}: the group {path[-1]} has the child {name}, but no group has that name")
        found = dict.fromkeys(group.hosts)
        for child in group.children:
            found.update(dict.fromkeys(self._members(child, (*path, name))))
        return tuple(found)

    def _levels(self) -> dict[str, int]:
        """How deep a group is nested; `all` contains everything."""
        levels = dict.fromkeys(self.groups, 1)
        levels["all"] = 0
        for _ in self.groups:  # at most as many rounds as there are groups: cycles were refused before
            for name, group in self.groups.items():
                for child in group.children:
                    levels[child] = max(levels[child], levels[name] + 1)
        return levels


def read_inventory(path: Path) -> Inventory:
    """Read an inventory; YAML where the file is called so, INI otherwise."""
    builder = _Builder(path)
    if path.suffix in {".yml", ".yaml", ".json"}:
        document = read_mapping(path, "groups such as all, routers and brokers")
        for name, content in document.items():
            _add_yaml_group(builder, str(name), content, 0)
    else:
        _read_ini(builder, read_text(path))
    if "all" in builder.groups:
        everything = builder.group("all")
        everything.hosts = list(dict.fromkeys([*everything.hosts, *builder.variables]))
    return builder.result()


def _read_ini(builder: _Builder, text: str) -> None:
    group, kind = "ungrouped", ""
    for number, line in enumerate(text.splitlines(), 1):
        words = _words(builder.source, number, line)
        if not words:
            continue
        if words[0].startswith("["):
            group, kind = _header(builder.source, number, line)
            builder.group(group)
        elif kind == "children":
            builder.group(group).children.append(words[0])
        elif kind == "vars":
            key, _, value = line.partition("=")
            builder.group(group).variables[key.strip()] = value.strip().strip("'\"")
        else:
            builder.add_host(group, words[0], dict(_variables(builder.source, number, words[1:])))
    for name in [child for each in builder.groups.values() for child in each.children]:
        if name not in builder.groups:
            raise ConfigError(f"{builder.source}: no group is called {name}, but another group has it as a child")


def _words(source: Path, number: int, line: str) -> list[str]:
    line = line.strip()
    if not line or line[0] in "#;":
        return []
    if line.startswith("["):
        return [line]
    try:
        return shlex.split(line, comments=True)
    except ValueError as err:
        raise ConfigError(f"{source}, line {number}: {err}") from err


def _header(source: Path, number: int, line: str) -> tuple[str, str]:
    match = re.fullmatch(r"\[([\w.-]+)(?::(children|vars))?\]\s*(?:[#;].*)?", line.strip())
    if match is None:
        raise ConfigError(f"{source}, line {number}: expected [group], [group:children] or [group:vars]")
    return match[1], match[2] or ""


def _variables(source: Path, number: int, words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{source}, line {number}: {word!r} is not a variable; write name=value")
        yield key, value


def _add_yaml_group(builder: _Builder, name: str, content: Any, depth: int) -> None:
    if depth > 50:
        raise ConfigError(f"{builder.source}: groups are nested too deeply")
    group = builder.group(name)
    content = {} if content is None else content
    if not isinstance(content, dict) or set(content) - {"hosts", "children", "vars"}:
        raise ConfigError(f"{builder.source}: the group {name} has keys other than hosts, children and vars")
    hosts, children = content.get("hosts") or {}, content.get("children") or {}
    for key, value in (("hosts", hosts), ("children", children), ("vars", content.get("vars") or {})):
        if not isinstance(value, dict):
            raise ConfigError(f"{builder.source}: {key} of the group {name} must be a mapping")
    group.variables.update(content.get("vars") or {})
    for pattern, variables in hosts.items():
        if variables is not None and not isinstance(variables, dict):
            raise ConfigError(f"{builder.source}: the variables of {pattern} must be a mapping")
        builder.add_host(name, str(pattern), variables or {})
    for child, inner in children.items():
        group.children.append(str(child))
        _add_yaml_group(builder, str(child), inner, depth + 1)


def _expanded(pattern: str, source: Path) -> list[str]:
    """router[1:3] is router1, router2 and router3; leading zeros are kept."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match[1], match[2]
    if first.isdigit() != last.isdigit():
        raise ConfigError(f"{source}: the range in {pattern} must have two numbers or two letters")
    if first.isdigit():
        numbers = range(int(first), int(last) + 1)
        if len(numbers) > _MAX_HOSTS:
            raise ConfigError(f"{source}: the range in {pattern} has more than {_MAX_HOSTS:,} hosts")
        values = [str(number).zfill(len(first)) for number in numbers]
    else:
        values = [chr(code) for code in range(ord(first), ord(last) + 1)]
    if not values:
        raise ConfigError(f"{source}: the range in {pattern} is empty")
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for value in values for name in _expanded(before + value + after, source)]
