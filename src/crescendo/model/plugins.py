"""Which parts of Crescendo come from other packages?

A registry lists its own parts and those that installed packages offer as entry points of its group. A plugin is
imported when it is asked for. A broken one is reported once on stderr and skipped; it never affects the others.
"""

import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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

    def load(self) -> Any:
        """Import it. Raises ConfigError, which names the package, when that fails."""
        try:
            return self.entry_point.load()
        except Exception as err:  # whatever the package's own code raises
            raise ConfigError(
                f"plugin {self.name!r} of {self.package} cannot be loaded from {self.entry_point.value}: "
                f"{type(err).__name__}: {err}; update or uninstall that package"
            ) from err


@cache
def plugins(group: str) -> dict[str, Plugin]:
    """name -> plugin, of all installed packages; the first package wins a name."""
    found: dict[str, Plugin] = {}
    for entry_point in entry_points(group=group):
        distribution = entry_point.dist
        package = "an unknown package" if distribution is None else f"{distribution.name} {distribution.version}"
        found.setdefault(entry_point.name, Plugin(group, entry_point.name, package, entry_point))
    return found


def load_plugin(group: str, name: str) -> Any | None:
    """The plugin of this name; None when no package offers it. Raises ConfigError when it is broken."""
    plugin = plugins(group).get(name)
    return None if plugin is None else plugin.load()


def loaded_plugins(group: str) -> Iterator[tuple[str, Any]]:
    """Every plugin of a group that can be loaded, by name. Broken ones are reported and skipped."""
    for name, plugin in plugins(group).items():
        try:
            yield name, plugin.load()
        except ConfigError as err:
            _report(str(err))


@cache
def _report(sentence: str) -> None:
    """Once per process."""
    print(f"crescendo: {sentence}", file=sys.stderr)
