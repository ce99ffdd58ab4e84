"""The verb `report`: one HTML page per run."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Analysed recordings, or directories of searches or campaigns.")],
) -> int:
    """Rewrite RUN/report.html, or the page of a search or a campaign: one self-contained page that needs no network."""
    from crescendo.record.campaign_effects import read_effects
    from crescendo.record.campaign_journal import CAMPAIGN_FILE
    from crescendo.record.search_result import SEARCH_FILE, read_search_result
    from crescendo.record.summary import read_summary
    from crescendo.report.campaign_page import write_campaign_page
    from crescendo.report.page import write_report
    from crescendo.report.search_page import write_search_page

    pages = {SEARCH_FILE: (read_search_result, write_search_page), CAMPAIGN_FILE: (read_effects, write_campaign_page)}
    kinds = [
        next((kind for name, kind in pages.items() if (run / name).is_file()), (read_summary, write_report))
        for run in runs
    ]
    for run, (read, _) in zip(runs, kinds, strict=True):
        read(run)  # all of them, before the first page is written
    for run, (_, write) in zip(runs, kinds, strict=True):
        print(f"report  {write(run)}")
    return 0
