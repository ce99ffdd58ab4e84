"""What is a section of the page made of?"""

from dataclasses import dataclass

from crescendo.report.plots.time_axis import Chart
from crescendo.report.sections.evidence import Grid

ROWS_SHOWN = 20


@dataclass(frozen=True)
class Section:
    """One section: a sentence, and a chart and tables, any of which may be missing."""

    id: str
    title: str
    lead: str
    chart: Chart | None
    grids: dict[str, Grid]  # title -> table
    left_out: int = 0  # rows that only the table itself has
