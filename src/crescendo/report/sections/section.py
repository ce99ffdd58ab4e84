"""What does a section of the page consist of?"""

from dataclasses import dataclass

from crescendo.report.plots.time_axis import Chart
from crescendo.report.sections.evidence import Grid

ROWS_SHOWN = 20


@dataclass(frozen=True)
class Section:
    """One section: an introduction, and optionally a chart and tables."""

    id: str
    title: str
    lead: str
    chart: Chart | None
    grids: dict[str, Grid]  # title -> table
    left_out: int = 0  # rows that are not shown on the page
    picture: str = ""  # SVG
    paragraphs: tuple[str, ...] = ()
