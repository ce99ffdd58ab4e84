"""What did the pipeline count, small enough to draw?

Reads the Parquet tables of a run and aggregates them on the way: seconds become at most `MAX_BINS` bins, and only the
first ranges are kept, so a soak of a day needs no more memory than a run of a minute. Counts are added and maxima kept;
nothing is averaged, sampled or judged. A missing table is empty.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero

from crescendo.record.table_reader import reading, table_dataset
from crescendo.record.table_types import column_name
from crescendo.record.tables import (
    LATENCY_HISTOGRAM,
    LEDGER_RANGES,
    SPAN_HISTOGRAM,
    THROUGHPUT,
    LatencyHistogramRow,
    LedgerRangeRow,
    ThroughputRow,
)

Int64s = npt.NDArray[np.int64]

MAX_BINS = 1800
RANGES_SHOWN = 50

_SECOND = column_name(ThroughputRow.second)  # the histogram has the same column
_ROLE, _MESSAGES = column_name(ThroughputRow.role), column_name(ThroughputRow.messages)
_PHASE, _KIND = column_name(LatencyHistogramRow.phase), column_name(LatencyHistogramRow.kind)
_BUCKET, _COUNT = column_name(LatencyHistogramRow.bucket), column_name(LatencyHistogramRow.count)
_MAX_NS = column_name(LatencyHistogramRow.max_ns)
_RANGE_KIND = column_name(LedgerRangeRow.kind)
_RANGE_ORDER = (
    column_name(LedgerRangeRow.subscription),
    column_name(LedgerRangeRow.sender),
    column_name(LedgerRangeRow.first_seq),
    column_name(LedgerRangeRow.last_seq),
)
_BIN, _FIRST, _LAST = "bin", "first", "last"  # computed here


@dataclass(frozen=True)
class TimeBins:
    """The seconds of a run, divided into bins of equal length."""

    first_second: int
    bin_seconds: int
    bins: int


@dataclass(frozen=True)
class HistogramCounts:
    """The number of samples in each bucket of each bin. A bucket appears at most once per bin."""

    bin: Int64s
    bucket: Int64s
    count: Int64s
    max_ns: Int64s


@dataclass(frozen=True)
class Ranges:
    """The first sequence ranges of one kind, in order, and how many there are in all."""

    kind: str
    total: int
    rows: list[LedgerRangeRow]


@dataclass(frozen=True)
class Tables:
    """The data behind the charts and the ledger's ranges."""

    time_bins: TimeBins | None  # None without any message
    messages: dict[str, Int64s]  # role -> messages per bin
    over_time: dict[str, HistogramCounts]  # kind -> all phases, by bin
    measured: dict[str, HistogramCounts]  # kind -> the measure phase as one bin
    ranges: list[Ranges]


def read_tables(run_dir: Path) -> Tables:
    """Read what is drawn. Raises ConfigError if a table exists but cannot be read."""
    with reading(run_dir, THROUGHPUT):
        throughput = table_dataset(run_dir, THROUGHPUT)
        extents = [_seconds(throughput)]
    with reading(run_dir, LATENCY_HISTOGRAM):
        histogram = table_dataset(run_dir, LATENCY_HISTOGRAM)
        extents.append(_seconds(histogram))
    with reading(run_dir, SPAN_HISTOGRAM):  # a request may end a second after the last message
        extents.append(_seconds(table_dataset(run_dir, SPAN_HISTOGRAM)))
    with reading(run_dir, LEDGER_RANGES):
        ranges = _ranges(table_dataset(run_dir, LEDGER_RANGES))
    time_bins = _time_bins([second for extent in extents for second in extent])
    messages: dict[str, Int64s] = {}
    over_time: dict[str, HistogramCounts] = {}
    measured: dict[str, HistogramCounts] = {}
    if time_bins is not None and throughput is not None:
        with reading(run_dir, THROUGHPUT):
            table = grouped(throughput, {_ROLE: pc.field(_ROLE), _BIN: bin_of(time_bins)}, {_MESSAGES: "sum"})
        messages = {role: _filled(rows, time_bins.bins) for role, rows in split_rows(table, _ROLE).items()}
    if time_bins is not None and histogram is not None:
        keys = {_PHASE: pc.field(_PHASE), _KIND: pc.field(_KIND), _BIN: bin_of(time_bins)}
        with reading(run_dir, LATENCY_HISTOGRAM):
            table = grouped(histogram, keys | {_BUCKET: pc.field(_BUCKET)}, {_COUNT: "sum", _MAX_NS: "max"})
        over_time = {kind: _counts(rows) for kind, rows in split_rows(table, _KIND).items()}
        judged = table.filter(pc.field(_PHASE) == "measure")
        measured = {kind: _counts(rows, one_bin=True) for kind, rows in split_rows(judged, _KIND).items()}
    return Tables(time_bins, messages, over_time, measured, ranges)


def _seconds(dataset: ds.Dataset | None) -> list[int]:
    """The first and the last second of a table; nothing if it has no rows."""
    if dataset is None:
        return []
    sums = [(_SECOND, "min", None, _FIRST), (_SECOND, "max", None, _LAST)]
    plan = [_scan(dataset, {_SECOND: pc.field(_SECOND)}), _node("aggregate", acero.AggregateNodeOptions(sums))]
    row = acero.Declaration.from_sequence(plan).to_table().to_pylist()[0]
    return [second for second in row.values() if second is not None]


def _time_bins(seconds: list[int]) -> TimeBins | None:
    if not seconds:
        return None
    first = min(0, *seconds)
    span = max(seconds) - first + 1
    bin_seconds = -(-span // MAX_BINS)
    return TimeBins(first, bin_seconds, -(-span // bin_seconds))


def bin_of(time_bins: TimeBins) -> Any:
    """The number of the bin of a row, as an expression."""
    return pc.divide(pc.field(_SECOND) - time_bins.first_second, time_bins.bin_seconds)


def grouped(dataset: Any, keys: dict[str, Any], values: dict[str, str]) -> Any:
    """Group while scanning, so that memory holds the groups, never the rows."""
    columns = keys | {name: pc.field(name) for name in values}
    sums = [(name, f"hash_{how}", None, name) for name, how in values.items()]
    group = _node("aggregate", acero.AggregateNodeOptions(sums, keys=list(keys)))
    return acero.Declaration.from_sequence([_scan(dataset, columns), group]).to_table(use_threads=False)


def _scan(dataset: Any, columns: dict[str, Any]) -> Any:
    scan = _node("scan", acero.ScanNodeOptions(dataset, columns=columns))
    return acero.Declaration.from_sequence(
        [scan, _node("project", acero.ProjectNodeOptions(list(columns.values()), list(columns)))]
    )


def _node(name: str, options: Any) -> Any:
    return acero.Declaration(name, options)


def split_rows(table: Any, column: str) -> dict[str, Any]:
    """The rows of each value of a column."""
    return {name: table.filter(pc.field(column) == name) for name in sorted(pc.unique(table[column]).to_pylist())}


def _filled(table: Any, bins: int) -> Int64s:
    # A bin without a row had no messages: a stall must show as zero, not as a line drawn across it.
    messages = np.zeros(bins, np.int64)
    messages[table[_BIN].to_numpy()] = table[_MESSAGES].to_numpy()
    return messages


def _counts(table: Any, *, one_bin: bool = False) -> HistogramCounts:
    keys = [_BUCKET] if one_bin else [_BIN, _BUCKET]
    merged = table.group_by(keys, use_threads=False).aggregate([(_COUNT, "sum"), (_MAX_NS, "max")])
    merged = merged.sort_by([(key, "ascending") for key in keys])
    bucket = merged[_BUCKET].to_numpy().astype(np.int64)
    return HistogramCounts(
        bin=np.zeros_like(bucket) if one_bin else merged[_BIN].to_numpy().astype(np.int64),
        bucket=bucket,
        count=merged[f"{_COUNT}_sum"].to_numpy().astype(np.int64),
        max_ns=merged[f"{_MAX_NS}_max"].to_numpy().astype(np.int64),
    )


def _ranges(dataset: Any) -> list[Ranges]:
    if dataset is None:
        return []
    order = [(key, "ascending") for key in _RANGE_ORDER]
    first: dict[str, Any] = {}
    totals: dict[str, int] = {}
    for batch in dataset.to_batches(columns=LEDGER_RANGES.column_names):
        for kind, rows in split_rows(pa.Table.from_batches([batch]), _RANGE_KIND).items():
            totals[kind] = totals.get(kind, 0) + rows.num_rows
            kept = pa.concat_tables([first[kind], rows]) if kind in first else rows
            first[kind] = kept.sort_by(order).slice(0, RANGES_SHOWN)
    return [Ranges(kind, totals[kind], LEDGER_RANGES.from_columns(first[kind].to_pylist())) for kind in sorted(first)]
