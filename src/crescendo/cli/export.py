"""The verb `export`: a recording in the format of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.exporters.registry import export_formats, exporter_of


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(export_formats())}.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
) -> int:
    """Write a run in the format of another tool, such as Maestro's .dat, .hdr, CSV and properties files."""
    for path in exporter_of(form)(run, out):
        print(path)
    return 0
