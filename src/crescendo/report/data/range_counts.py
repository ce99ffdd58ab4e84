"""What must a page know to answer for any range of time?

The counts behind its charts and tables, by bins of time: messages of both sides, latencies and spans as histograms with
their exact buckets, and readings. Bins become wider until everything fits a page of some hundred kilobytes; counts are
added and extremes kept, nothing is sampled. The page adds up what lies in the range that a reader selects.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from crescendo.model.histogram import bucket_ceiling
from crescendo.record.table_reader import reading, table_dataset
from crescendo.record.table_types import Table, column_name
from crescendo.record.tables import LATENCY_HISTOGRAM, SPAN_HISTOGRAM, LatencyHistogramRow, SpanHistogramRow
from crescendo.report.data.chart_tables import Tables, TimeBins, bin_of, grouped, split_rows
from crescendo.report.data.reading_tables import ReadingSeries

MAX_CELLS = 100_000
"""Pairs of bin and bucket per table; compressed, they take about two bytes each."""
MAX_RANGE_BINS = 900
MAX_POINTS = 500
"""Of one reading over time; neighbours are merged into their mean."""

_BIN = "bin"
_BUCKET, _COUNT = column_name(LatencyHistogramRow.bucket), column_name(LatencyHistogramRow.count)
_SUM_NS, _MIN_NS = column_name(LatencyHistogramRow.sum_ns), column_name(LatencyHistogramRow.min_ns)
_MAX_NS, _KIND = column_name(LatencyHistogramRow.max_ns), column_name(LatencyHistogramRow.kind)
_ACTION = column_name(SpanHistogramRow.action)


def range_counts(run_dir: Path, tables: Tables, readings: Mapping[str, ReadingSeries]) -> dict[str, Any] | None:
    """The document that the page's script reads; None for a run without messages. `readings` are by their row's key."""
    bins = tables.time_bins
    if bins is None:
        return None
    return {
        "rates": _span_of(bins) | {role: counts.tolist() for role, counts in tables.messages.items()},
        "latency": _histograms(run_dir, LATENCY_HISTOGRAM, _KIND, bins),
        "spans": _histograms(run_dir, SPAN_HISTOGRAM, _ACTION, bins),
        "readings": {key: _points(series) for key, series in readings.items()},
    }


def _span_of(bins: TimeBins) -> dict[str, Any]:
    return {"first": bins.first_second, "width": bins.bin_seconds, "bins": bins.bins}


def _histograms(run_dir: Path, table: Table[Any], name: str, bins: TimeBins) -> dict[str, Any]:
    with reading(run_dir, table):
        dataset = table_dataset(run_dir, table)
        if dataset is None or not dataset.count_rows():
            return {}
        wide = _widened(bins, -(-bins.bins // MAX_RANGE_BINS))
        keys = {name: pc.field(name), _BIN: bin_of(wide), _BUCKET: pc.field(_BUCKET)}
        values = {_COUNT: "sum", _SUM_NS: "sum", _MIN_NS: "min", _MAX_NS: "max"}
        by_name = split_rows(grouped(dataset, keys, values), name)
    while wide.bins > 1 and sum(rows.num_rows for rows in by_name.values()) > MAX_CELLS:
        wide = _widened(wide, 2)
        by_name = {each: _merged(rows, 2) for each, rows in by_name.items()}
    buckets = np.unique(np.concatenate([rows[_BUCKET].to_numpy() for rows in by_name.values()]))
    return _span_of(wide) | {
        "ceilings_ns": [bucket_ceiling(int(bucket)) for bucket in buckets],
        "series": {each: _columns(rows, buckets, wide) for each, rows in by_name.items()},
    }


def _widened(bins: TimeBins, factor: int) -> TimeBins:
    return TimeBins(bins.first_second, bins.bin_seconds * factor, -(-bins.bins // factor))


def _merged(rows: Any, factor: int) -> Any:
    """The same counts in bins that are wider by a factor."""
    wider = rows.set_column(
        rows.schema.get_field_index(_BIN), _BIN, pc.divide(rows[_BIN].cast("int64"), np.int64(factor))
    )
    sums = [(_COUNT, "sum"), (_SUM_NS, "sum"), (_MIN_NS, "min"), (_MAX_NS, "max")]
    merged = wider.group_by([_BIN, _BUCKET], use_threads=False).aggregate(sums)
    return merged.rename_columns({f"{column}_{how}": column for column, how in sums})


def _columns(rows: Any, buckets: Any, bins: TimeBins) -> dict[str, Any]:
    """Cells sorted by bin and bucket, as differences, which compress well; then sums and extremes per bin."""
    ordered = rows.sort_by([(_BIN, "ascending"), (_BUCKET, "ascending")])
    at = ordered[_BIN].to_numpy().astype(np.int64)
    index = np.searchsorted(buckets, ordered[_BUCKET].to_numpy())
    total = np.zeros(bins.bins, np.int64)
    lowest, highest = np.full(bins.bins, np.iinfo(np.int64).max), np.full(bins.bins, np.iinfo(np.int64).min)
    np.add.at(total, at, ordered[_SUM_NS].to_numpy())
    np.minimum.at(lowest, at, ordered[_MIN_NS].to_numpy())
    np.maximum.at(highest, at, ordered[_MAX_NS].to_numpy())
    used = np.unique(at)
    return {
        "bin": np.diff(at, prepend=0).tolist(),
        "bucket": np.diff(index, prepend=0).tolist(),
        "count": ordered[_COUNT].to_numpy().tolist(),
        "used": used.tolist(),
        "sum_ns": total[used].tolist(),
        "min_ns": lowest[used].tolist(),
        "max_ns": highest[used].tolist(),
    }


def _points(series: ReadingSeries) -> dict[str, list[float]]:
    count = series.t_s.size
    edges = np.unique(np.linspace(0, count, min(count, MAX_POINTS) + 1).astype(np.int64))[:-1]
    sizes = np.diff(np.append(edges, count))
    means = np.add.reduceat(series.value, edges) / sizes
    peaks = np.maximum.reduceat(series.value, edges)
    return {
        "t": [round(float(each), 3) for each in series.t_s[edges]],
        "mean": [float(f"{each:.8g}") for each in means],
        "peak": [float(f"{each:.8g}") for each in peaks],
        "count": sizes.tolist(),
    }
