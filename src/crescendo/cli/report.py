"""The verb `report`: one HTML page per run."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

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
    for page in _write_overlay(runs, overlay) if overlay is not None else _write_pages(runs):
        show_page(page, pdf=pdf)
    return 0


def _write_overlay(runs: list[Path], path: Path) -> list[Path]:
    from crescendo.model.errors import ConfigError
    from crescendo.report.overlay_page import write_overlay

    if not path.parent.is_dir():
        raise ConfigError(f"--overlay {path}: there is no directory {path.parent}; create it first")
    return [write_overlay(runs, path)]


def _write_pages(runs: list[Path]) -> list[Path]:
    from crescendo.record.campaign_effects import read_effects
    from crescendo.record.campaign_journal import CAMPAIGN_FILE
    from crescendo.record.capacity_result import CAPACITY_FILE, read_capacity
    from crescendo.record.search_result import SEARCH_FILE, read_search_result
    from crescendo.record.summary import read_summary
    from crescendo.report.campaign_page import write_campaign_page
    from crescendo.report.capacity_page import write_capacity_page
    from crescendo.report.data.study_document import STUDY_FILE, read_study_document
    from crescendo.report.page import write_report
    from crescendo.report.search_page import write_search_page
    from crescendo.report.study_page import write_study_page

    pages: dict[str, tuple[Callable[[Path], object], Callable[[Path], Path]]] = {
        SEARCH_FILE: (read_search_result, write_search_page),
        CAMPAIGN_FILE: (read_effects, write_campaign_page),
        CAPACITY_FILE: (read_capacity, write_capacity_page),
        STUDY_FILE: (read_study_document, write_study_page),
    }
    kinds = [
        next((kind for name, kind in pages.items() if (run / name).is_file()), (read_summary, write_report))
        for run in runs
    ]
    for run, (read, _) in zip(runs, kinds, strict=True):
        read(run)  # all of them, before the first page is written
    return [write(run) for run, (_, write) in zip(runs, kinds, strict=True)]
