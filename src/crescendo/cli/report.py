"""The verb `report`: one HTML page per run."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import check_directory_of
from crescendo.cli.written_page import Pdf, check_browser, show_page


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Analysed recordings, or directories of searches, campaigns, studies.")
    ],
    overlay: Annotated[
        Path | None,
        typer.Option("--overlay", metavar="FILE", help="Instead, one page with 2 to 5 runs on the same axes."),
    ] = None,
    pdf: Pdf = False,
) -> int:
    """Rewrite RUN/report.html, or the page of a search or a campaign: one self-contained page that needs no network."""
    check_browser(pdf)
    if overlay is None:
        from crescendo.report.page_of_directory import write_pages

        pages = write_pages(runs)
    else:
        from crescendo.report.overlay_page import write_overlay

        check_directory_of(overlay, "--overlay")
        pages = [write_overlay(runs, overlay)]
    for page in pages:
        show_page(page, pdf=pdf)
    return 0
