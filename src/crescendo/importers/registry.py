"""Which formats can be imported? A new one is one module and one line here; plugins add theirs.

A format's module is imported when the format is requested: each of them imports Spark.
"""

from typing import TYPE_CHECKING

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

if TYPE_CHECKING:
    from crescendo.importers.format import Format

FORMATS: dict[str, str] = {
    "maestro": "maestro.files:MAESTRO",
    "mlmq-log": "mlmq_log:MLMQ_LOG",
    "amqp-csv": "amqp_csv:AMQP_CSV",
    "amqperf": "amqperf:AMQPERF",
    "gftp": "gftp:GFTP",
    "quiver": "quiver:QUIVER",
    "perftest": "perftest:PERFTEST",
}


def import_formats() -> list[str]:
    return plugins.known_names(FORMATS, plugins.IMPORTERS)


def format_of(name: str) -> "Format":
    from crescendo.importers.format import Format

    found: Format | None = plugins.find_part(FORMATS, "crescendo.importers.formats", plugins.IMPORTERS, name, Format)
    if found is None:
        raise ConfigError(f"no import format is called {name!r}; {listing(name, import_formats())}")
    return found
