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
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR
from crescendo.report.data.chart_tables import MAX_BINS

Floats = npt.NDArray[np.float64]

READINGS, SUMMARY, GAPS = "readings", "reading_summary", "reading_gaps"


@dataclass(frozen=True)
class ReadingSummary:
    """One metric of one entity over the measure phase; None where there are too few samples."""

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
    """An interval in which an inspector got no readings; without an end if it never recovered."""

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

    def series(self, wanted: list[ReadingSummary]) -> list[ReadingSeries]:
        """The readings behind some summaries. A metric without a column in the table is omitted."""
        try:
            dataset = self._dataset(READINGS)
            if dataset is None:
                return []
            found = [self._series(dataset, summary) for summary in wanted]
            return [series for series in found if series is not None and series.t_s.size]
        except (pa.ArrowException, OSError) as err:
            raise self._unreadable(err) from err

    def _series(self, dataset: Any, summary: ReadingSummary) -> ReadingSeries | None:
        column = _column(dataset.schema.names, summary.metric)
        if column is None:
            return None
        mine = (pc.field("source") == summary.source) & (pc.field("entity") == summary.entity)
        table = dataset.to_table(columns=["t_ns", column], filter=mine & pc.is_finite(pc.field(column)))
        table = table.sort_by("t_ns")
        t_s = (table["t_ns"].to_numpy() - self._origin_ns) / 1e9
        return ReadingSeries(summary, *_downsampled(t_s, table[column].to_numpy()))

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
