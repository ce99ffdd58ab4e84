"""Which tables can an analysed run have, those of other packages included?

A package offers a table as an entry point of the group `crescendo.tables`. One that cannot be used is reported and
skipped.
"""

import re
from typing import Any

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.record.table_types import Table
from crescendo.record.tables import TABLES

RESERVED = "runs"
"""The lake keeps its own table of this name."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def published_tables() -> dict[str, Table[Any]]:
    """name -> table, of this package and of others."""
    return {table.name: table for table in (*plugin_tables(), *TABLES)}


def plugin_tables() -> list[Table[Any]]:
    """The tables of other packages. One that cannot be used is reported on stderr and skipped."""
    taken = {table.name for table in TABLES}
    found: list[Table[Any]] = []
    for name, value in plugins.loaded_plugins(plugins.TABLES, Table):
        try:
            table = _usable(name, value, taken)
        except ConfigError as err:
            plugins.report_once(f"{err}; it is skipped")
            continue
        taken.add(table.name)
        found.append(table)
    return found


def _usable(plugin: str, value: Table[Any], taken: set[str]) -> Table[Any]:
    if _NAME.fullmatch(value.name) is None or value.name == RESERVED:
        raise ConfigError(f"table plugin {plugin!r}: {value.name!r} cannot be the name of a table")
    if value.name in taken:
        raise ConfigError(f"table plugin {plugin!r}: there is another table named {value.name!r}")
    if value.build is None:
        raise ConfigError(f"table plugin {plugin!r} has no function `build`")
    try:
        _ = value.columns
    except (KeyError, TypeError, ValueError) as err:
        raise ConfigError(f"table plugin {plugin!r}: a column of {value.row!r} has an unknown type: {err}") from err
    return value
