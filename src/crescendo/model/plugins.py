"""Which parts of Crescendo come from other packages?

A registry lists its own parts and those that installed packages offer as entry points of its group. A plugin is
imported when it is asked for. A broken one is reported once on stderr and skipped; it never affects the others.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution, EntryPoint, EntryPoints, distributions, entry_points
from pkgutil import resolve_name
from typing import Any, NamedTuple

from crescendo.model.errors import ConfigError

PROTOCOLS = "crescendo.protocols"
SYSTEMS = "crescendo.systems"
INSPECTORS = "crescendo.inspectors"
TABLES = "crescendo.tables"
CHECKS = "crescendo.checks"
IMPORTERS = "crescendo.importers"
EXPORTERS = "crescendo.exporters"
VERBS = "crescendo.verbs"

GROUPS = (PROTOCOLS, SYSTEMS, INSPECTORS, TABLES, CHECKS, IMPORTERS, EXPORTERS, VERBS)


class Plugin(NamedTuple):
    """One part that another package offers."""

    group: str
    name: str
    package: str  # name and version of the distribution
    entry_point: EntryPoint

    def load(self, expected: Any = object) -> Any:
        """Import it. Raises ConfigError, which names the package, when that fails or the value is not as expected."""
        try:
            value = self.entry_point.load()
        except (Exception, SystemExit) as err:  # whatever the package's own code raises
            raise self._unusable(
                f"cannot be loaded from {self.entry_point.value}: {type(err).__name__}: {err}"
            ) from err
        if not _is_a(value, expected):
            raise self._unusable(f"cannot be used: {self.entry_point.value} is not a {expected.__name__}")
        called = getattr(value, "name", self.name)
        if isinstance(called, str) and called != self.name:
            raise self._unusable(f"cannot be used: {self.entry_point.value} has the name {called!r}")
        return value

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(
            f"plugin {self.name!r} of {self.package} ({self.group}) {why}; update or uninstall that package"
        )


def _is_a(value: Any, expected: Any) -> bool:
    """A class has the attributes of its instances, but is not one of them."""
    return isinstance(value, expected) and (not isinstance(value, type) or expected in {object, type, Callable})


@cache
def _installed() -> Any:
    """Of all packages, as an object with `select`; its type depends on the version of Python.

    One scan of the import path serves all groups.
    """
    try:
        return entry_points()
    except Exception:  # one package has entry points that cannot be parsed: look at them one by one
        return EntryPoints(found for distribution in distributions() for found in _readable(distribution))


def _readable(distribution: Distribution) -> EntryPoints:
    try:
        return distribution.entry_points
    except Exception as err:
        report_once(f"the entry points of {_label(distribution)} cannot be read ({err}); reinstall that package")
        return EntryPoints()


def _label(distribution: Distribution | None) -> str:
    try:
        return f"{distribution.name} {distribution.version}" if distribution else "an unknown package"
    except Exception:  # its metadata is damaged, too
        return "an unknown package"


@cache
def offered(group: str) -> tuple[Plugin, ...]:
    """What installed packages offer, in the order of names and packages; several may offer the same name."""
    found = [Plugin(group, given.name, _label(given.dist), given) for given in _installed().select(group=group)]
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.package)))


@cache
def plugins(group: str) -> dict[str, Plugin]:
    """name -> plugin, of all installed packages; the first package wins a name."""
    found: dict[str, Plugin] = {}
    for plugin in offered(group):
        found.setdefault(plugin.name, plugin)
    return found


def known_names(own: Iterable[str], group: str) -> list[str]:
    """The names of a registry's own parts, then those that only plugins have. Imports none of them."""
    return list(dict.fromkeys([*own, *plugins(group)]))


def load_plugin(group: str, name: str, expected: Any = object) -> Any | None:
    """The plugin of this name; None when no package offers it. Raises ConfigError when it is broken."""
    plugin = plugins(group).get(name)
    return None if plugin is None else plugin.load(expected)


def find_part(own: Mapping[str, str], home: str, group: str, name: str, expected: Any = object) -> Any | None:
    """A part of ours, whose `module:attribute` is below the package `home`, or a plugin; None when there is neither.

    Its module is imported now.
    """
    return resolve_name(f"{home}.{own[name]}") if name in own else load_plugin(group, name, expected)


def loaded_plugins(group: str, expected: Any = object) -> Iterator[tuple[str, Any]]:
    """Every plugin of a group that can be used, by name. Broken ones are reported and skipped."""
    for name, plugin in plugins(group).items():
        try:
            yield name, plugin.load(expected)
        except ConfigError as err:
            report_once(str(err))


@cache
def report_once(sentence: str) -> None:
    """Once per process."""
    print(f"crescendo: {sentence}", file=sys.stderr)
