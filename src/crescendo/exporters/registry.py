"""Which formats can a recording be exported to? A new one is one package and one line here; plugins add theirs.

An exporter's module is imported when its format is requested.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing

Exporter = Callable[[Path, Path], Iterable[Path]]
"""Exports an analysed run into a new or empty directory, and returns the files."""

EXPORTERS: dict[str, str] = {
    "csv": "results.export_results:export_csv",
    "junit": "results.export_results:export_junit",
    "maestro": "maestro.export:export_maestro",
    "openmetrics": "results.export_results:export_openmetrics",
    "otlp": "results.otlp:export_otlp",
    "amqp-csv": "amqp_csv.export:export_amqp_csv",
}


def export_formats() -> list[str]:
    return plugins.known_names(EXPORTERS, plugins.EXPORTERS)


def exporter_of(name: str) -> Exporter:
    exporter: Exporter | None = plugins.find_part(EXPORTERS, "crescendo.exporters", plugins.EXPORTERS, name, Callable)
    if exporter is None:
        raise ConfigError(f"no export format is called {name!r}; {listing(name, export_formats())}")
    return exporter
