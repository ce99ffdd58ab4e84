"""The verb `export`: a recording in the format of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.exporters.registry import export_formats
from crescendo.model.errors import ConfigError

OTLP = "otlp"


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(export_formats())}.")],
    run: Annotated[Path, typer.Argument(help="An analysed recording.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="otlp: also send it to this collector, over HTTP.")
    ] = None,
    to_file: Annotated[
        str | None,
        typer.Option("--to-file", metavar="FILE", help="A file with that URL, - for standard input; or CRESCENDO_TO."),
    ] = None,
) -> int:
    """Write a run in the format of another tool, such as Maestro's .dat, .hdr, CSV and properties files."""
    from crescendo.cli.secret_options import secret_url

    if form != OTLP and (to is not None or to_file is not None):
        raise ConfigError(f"--to: only {OTLP} is sent; {form} is written to files")
    collector = secret_url("--to", to, to_file) if form == OTLP else None
    from crescendo.api import export as write_export

    for path in write_export(form, run, out):
        print(path)
        if collector is not None:
            from crescendo.exporters.results.otlp import send_otlp

            send_otlp(path.read_bytes(), collector)
    return 0
