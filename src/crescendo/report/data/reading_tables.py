"""What did the inspectors read, small enough to draw?

Reads the tables of readings: all summaries, but only the few series that will be drawn, downsampled to at most
`MAX_BINS` points. Each point is the largest reading in its bin, so that no spike disappears. Judges nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from crescendo.record.table_reader import reading, rows, table_dataset
from crescendo.record.table_types import column_name
from crescendo.record.tables import (
    READING_GAPS,
    READING_SUMMARY,
    READINGS,
    ReadingGapRow,
    ReadingRow,
    ReadingSummaryRow,
)
from crescendo.report.data.chart_tables import MAX_BINS

Floats = npt.NDArray[np.float64]

_SOURCE, _ENTITY = column_name(ReadingRow.source), column_name(ReadingRow.entity)
_T_NS = column_name(ReadingRow.t_ns)


@dataclass(frozen=True)
class InspectorGap:
    """An interval in which an inspector got no readings; without an end if it never recovered."""

    source: str
    start_s: float
    end_s: float | None
    reason: str


@dataclass(frozen=True)
class ReadingSeries:
    """The readings of one metric of one entity over time, in seconds from the start of the first phase."""

    summary: ReadingSummaryRow
    t_s: Floats
    value: Floats


class ReadingTables:
    """The tables of readings of one run."""

    def __init__(self, run_dir: Path, origin_ns: int) -> None:
        self._run_dir = run_dir
        self._origin_ns = origin_ns
        self.summaries = rows(run_dir, READING_SUMMARY)
        self.gaps = [self._gap(row) for row in rows(run_dir, READING_GAPS)]

    def series(self, wanted: list[ReadingSummaryRow]) -> list[ReadingSeries]:
        """The readings behind some summaries. A metric without a column in the table is omitted."""
        with reading(self._run_dir, READINGS):
            dataset = table_dataset(self._run_dir, READINGS)
            if dataset is None:
                return []
            found = [self._series(dataset, summary) for summary in wanted]
            return [series for series in found if series is not None and series.t_s.size]

    def _series(self, dataset: Any, summary: ReadingSummaryRow) -> ReadingSeries | None:
        column = _column(dataset.schema.names, summary.metric)
        if column is None:
            return None
        mine = (pc.field(_SOURCE) == summary.source) & (pc.field(_ENTITY) == summary.entity)
        table = dataset.to_table(columns=[_T_NS, column], filter=mine & pc.is_finite(pc.field(column)))
        table = table.sort_by(_T_NS)
        t_s = (table[_T_NS].to_numpy() - self._origin_ns) / 1e9
        return ReadingSeries(summary, *_downsampled(t_s, table[column].to_numpy()))

    def _gap(self, row: ReadingGapRow) -> InspectorGap:
        end_s = None if row.end_ns is None else self._seconds(row.end_ns)
        return InspectorGap(row.source, self._seconds(row.start_ns), end_s, row.reason)

    def _seconds(self, t_ns: int) -> float:
        return (t_ns - self._origin_ns) / 1e9


def _column(columns: list[str], metric: str) -> str | None:
    """The column of a metric. It has a numeric suffix if another metric has the same name in different case."""
    if metric in columns:
        return metric
    numbered = re.compile(re.escape(metric) + r"_\d+")
    return next((column for column in columns if numbered.fullmatch(column)), None)


def _downsampled(t_s: Floats, value: Floats) -> tuple[Floats, Floats]:
    if t_s.size <= MAX_BINS:
        return t_s, value
    edges = np.linspace(0, t_s.size, MAX_BINS + 1).astype(np.int64)[:-1]
    return t_s[edges], np.maximum.reduceat(value, edges)
