"""The verb `report`: one HTML page per run."""

from pathlib import Path
from typing import Annotated

import typer


def report(runs: Annotated[list[Path], typer.Argument(help="Analysed recordings.")]) -> int:
    """Rewrite RUN/report.html: one self-contained page that needs no network."""
    from crescendo.record.summary import read_summary
    from crescendo.report.page import write_report

    for run_dir in runs:
        read_summary(run_dir)
    for run_dir in runs:
        print(f"report  {write_report(run_dir)}")
    return 0
