"""Which page does a directory of results get?

That of a run, or of the search, campaign or study whose document lies in it. Draws nothing itself.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

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

_PAGES: dict[str, tuple[Callable[[Path], object], Callable[[Path], Path]]] = {
    SEARCH_FILE: (read_search_result, write_search_page),
    CAMPAIGN_FILE: (read_effects, write_campaign_page),
    CAPACITY_FILE: (read_capacity, write_capacity_page),
    STUDY_FILE: (read_study_document, write_study_page),
}
"""The document in a directory -> how it is read, and what writes its page."""


def write_pages(directories: Sequence[Path]) -> list[Path]:
    """Write the page of each directory. All are read before the first page is written."""
    kinds = [
        next((kind for name, kind in _PAGES.items() if (directory / name).is_file()), (read_summary, write_report))
        for directory in directories
    ]
    for directory, (read, _) in zip(directories, kinds, strict=True):
        read(directory)
    return [write(directory) for directory, (_, write) in zip(directories, kinds, strict=True)]
