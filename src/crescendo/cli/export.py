"""The verb `export`: a recording in the format of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.model.errors import ConfigError

FORMATS = ("maestro",)


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(FORMATS)}.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
) -> int:
    """Write a run in the format of another tool: Maestro's .dat, .hdr, CSV and properties files."""
    if form not in FORMATS:
        raise ConfigError(f"no export format is called {form!r}; known: {', '.join(FORMATS)}")
    from crescendo.exporters.maestro.export import export_maestro

    for path in export_maestro(run, out):
        print(path)
    return 0
