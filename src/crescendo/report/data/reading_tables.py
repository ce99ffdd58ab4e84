"""What did the inspectors leave for the report, small enough to draw?

Reads the tables of readings: all summaries, and of the looks only the few lines that will be drawn, folded to at most
`MAX_BINS` points, each the largest reading in its bin, so that a spike is never folded away. Judges nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR
from crescendo.report.data.tables import MAX_BINS

Floats = npt.NDArray[np.float64]

READINGS, SUMMARY, GAPS = "readings", "reading_summary", "reading_gaps"


@dataclass(frozen=True)
class ReadingSummary:
    """One metric of one entity over the measure phase; None where nothing may be said."""

    source: str
    entity: str
    metric: str
    samples: int
    first: float | None
    last: float | None
    min: float | None
    mean: float | None
    peak: float | None
    slope: float | None
    r2: float | None


@dataclass(frozen=True)
class InspectorGap:
    """Seconds in which a source could not look; without an end when it never could again."""

    source: str
    start_s: float
    end_s: float | None
    reason: str


@dataclass(frozen=True)
class ReadingSeries:
    """The readings of one metric of one entity over time, in seconds from the start of the first phase."""

    summary: ReadingSummary
    t_s: Floats
    value: Floats


class ReadingTables:
    """The tables of readings of one run."""

    def __init__(self, run_dir: Path, origin_ns: int) -> None:
        self._dir = run_dir / TABLES_DIR
        self._origin_ns = origin_ns
        try:
            self.summaries = [_summary(row) for row in self._rows(SUMMARY)]
            self.gaps = [self._gap(row) for row in self._rows(GAPS)]
        except (pa.ArrowException, OSError) as err:
            raise self._unreadable(err) from err

    def lines(self, wanted: list[ReadingSummary]) -> list[ReadingSeries]:
        """The readings behind some summaries; one whose metric has no column in the table is left out."""
        try:
            dataset = self._dataset(READINGS)
            if dataset is None:
                return []
            return [line for summary in wanted if (line := self._line(dataset, summary)) is not None and line.t_s.size]
        except (pa.ArrowException, OSError) as err:
            raise self._unreadable(err) from err

    def _line(self, dataset: Any, summary: ReadingSummary) -> ReadingSeries | None:
        column = _column(dataset.schema.names, summary.metric)
        if column is None:
            return None
        mine = (pc.field("source") == summary.source) & (pc.field("entity") == summary.entity)
        table = dataset.to_table(columns=["t_ns", column], filter=mine & pc.is_finite(pc.field(column)))
        table = table.sort_by("t_ns")
        t_s = (table["t_ns"].to_numpy() - self._origin_ns) / 1e9
        return ReadingSeries(summary, *_folded(t_s, table[column].to_numpy()))

    def _gap(self, row: dict[str, Any]) -> InspectorGap:
        end_ns = row["end_ns"]
        return InspectorGap(
            row["source"], self._seconds(row["start_ns"]), end_ns and self._seconds(end_ns), row["reason"]
        )

    def _seconds(self, t_ns: int) -> float:
        return (t_ns - self._origin_ns) / 1e9

    def _rows(self, table: str) -> list[dict[str, Any]]:
        dataset = self._dataset(table)
        rows: list[dict[str, Any]] = [] if dataset is None else dataset.to_table().to_pylist()
        return rows

    def _dataset(self, table: str) -> Any:
        files = sorted((self._dir / table).glob("*.parquet"))
        return ds.dataset([str(file) for file in files], format="parquet") if files else None

    def _unreadable(self, err: Exception) -> ConfigError:
        return ConfigError(f"{self._dir}: cannot be read, analyse the run again: {err}")


def _summary(row: dict[str, Any]) -> ReadingSummary:
    return ReadingSummary(**{name: row[name] for name in ReadingSummary.__dataclass_fields__})


def _column(columns: list[str], metric: str) -> str | None:
    """The column of a metric; one whose name was taken in other letters has a number behind it."""
    if metric in columns:
        return metric
    numbered = re.compile(re.escape(metric) + r"_\d+")
    return next((column for column in columns if numbered.fullmatch(column)), None)


def _folded(t_s: Floats, value: Floats) -> tuple[Floats, Floats]:
    if t_s.size <= MAX_BINS:
        return t_s, value
    edges = np.linspace(0, t_s.size, MAX_BINS + 1).astype(np.int64)[:-1]
    return t_s[edges], np.maximum.reduceat(value, edges)
