"""What came from which package, and does it work?

Every plugin is asked for in the way a user would ask for it, through the registry of its group. Changes nothing.
"""

from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any, NamedTuple

from crescendo.exporters.registry import EXPORTERS, exporter_of
from crescendo.importers.registry import FORMATS, format_of
from crescendo.inspectors.registry import INSPECTORS, inspector_of
from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import METRICS, Metric
from crescendo.model.plugins import Plugin
from crescendo.model.protocols import OWN, protocol_of
from crescendo.record.table_types import Table
from crescendo.record.tables import TABLES
from crescendo.systems.registry import SYSTEMS, system_of

OK, BROKEN, IGNORED = "ok", "broken", "ignored"


class PluginState(NamedTuple):
    """One plugin, and why it is not used where that is so."""

    plugin: Plugin
    state: str
    why: str = ""


class _Registry(NamedTuple):
    """Where the parts of a group are looked up."""

    own: Container[str]
    find: Callable[[str], Any]


def plugin_states(own_verbs: Container[str]) -> Iterator[PluginState]:
    """Every plugin that an installed package offers. None of them can replace one of our own verbs."""
    for group, registry in _registries(own_verbs).items():
        for plugin in plugins.offered(group):
            yield _state(plugin, registry)


def _state(plugin: Plugin, registry: _Registry) -> PluginState:
    winner = plugins.plugins(plugin.group)[plugin.name]
    if plugin.name in registry.own or winner is not plugin:
        owner = "Crescendo" if plugin.name in registry.own else winner.package
        why = f"plugin {plugin.name!r} of {plugin.package} ({plugin.group}) is ignored: {owner} has the same name"
        return PluginState(plugin, IGNORED, f"{why}; rename it or uninstall that package")
    try:
        registry.find(plugin.name)
    except ConfigError as err:
        return PluginState(plugin, BROKEN, str(err))
    return PluginState(plugin, OK)


def _registries(own_verbs: Container[str]) -> dict[str, _Registry]:
    return {
        plugins.PROTOCOLS: _Registry(OWN, protocol_of),
        plugins.TABLES: _Registry({table.name for table in TABLES}, _loader(plugins.TABLES, Table)),
        plugins.CHECKS: _Registry(METRICS, _loader(plugins.CHECKS, Metric)),
        plugins.SYSTEMS: _Registry(SYSTEMS, system_of),
        plugins.INSPECTORS: _Registry(INSPECTORS, inspector_of),
        plugins.IMPORTERS: _Registry(FORMATS, format_of),
        plugins.EXPORTERS: _Registry(EXPORTERS, exporter_of),
        plugins.VERBS: _Registry(own_verbs, _loader(plugins.VERBS, Callable)),
    }


def _loader(group: str, expected: Any) -> Callable[[str], Any]:
    return partial(plugins.load_plugin, group, expected=expected)
