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

from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR

Int64s = npt.NDArray[np.int64]

MAX_BINS = 1800
RANGES_SHOWN = 50

THROUGHPUT, HISTOGRAM, RANGES = "throughput", "latency_histogram", "ledger_ranges"


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
    rows: list[dict[str, Any]]


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
    try:
        return _read(run_dir)
    except (pa.ArrowException, OSError) as err:
        raise ConfigError(f"{run_dir / TABLES_DIR}: cannot be read, analyse the run again: {err}") from err


def _read(run_dir: Path) -> Tables:
    throughput, histogram = _dataset(run_dir, THROUGHPUT), _dataset(run_dir, HISTOGRAM)
    time_bins = _time_bins([dataset for dataset in (throughput, histogram) if dataset is not None])
    messages: dict[str, Int64s] = {}
    over_time: dict[str, HistogramCounts] = {}
    measured: dict[str, HistogramCounts] = {}
    if time_bins is not None and throughput is not None:
        table = _grouped(throughput, {"role": pc.field("role"), "bin": _bin(time_bins)}, {"messages": "sum"})
        messages = {role: _filled(rows, time_bins.bins) for role, rows in _split(table, "role").items()}
    if time_bins is not None and histogram is not None:
        keys = {"phase": pc.field("phase"), "kind": pc.field("kind"), "bin": _bin(time_bins)}
        table = _grouped(histogram, keys | {"bucket": pc.field("bucket")}, {"count": "sum", "max_ns": "max"})
        over_time = {kind: _counts(rows) for kind, rows in _split(table, "kind").items()}
        judged = table.filter(pc.field("phase") == "measure")
        measured = {kind: _counts(rows, one_bin=True) for kind, rows in _split(judged, "kind").items()}
    return Tables(time_bins, messages, over_time, measured, _ranges(_dataset(run_dir, RANGES)))


def _dataset(run_dir: Path, name: str) -> Any:
    # Spark writes markers and checksums next to its parts; only the parts are data.
    files = sorted((run_dir / TABLES_DIR / name).glob("*.parquet"))
    return ds.dataset([str(file) for file in files], format="parquet") if files else None


def _time_bins(datasets: list[Any]) -> TimeBins | None:
    seconds: list[int] = []
    for dataset in datasets:
        sums = [("second", "min", None, "first"), ("second", "max", None, "last")]
        plan = [_scan(dataset, {"second": pc.field("second")}), _node("aggregate", acero.AggregateNodeOptions(sums))]
        row = acero.Declaration.from_sequence(plan).to_table().to_pylist()[0]
        seconds += [second for second in row.values() if second is not None]
    if not seconds:
        return None
    first = min(0, *seconds)
    span = max(seconds) - first + 1
    bin_seconds = -(-span // MAX_BINS)
    return TimeBins(first, bin_seconds, -(-span // bin_seconds))


def _bin(time_bins: TimeBins) -> Any:
    return pc.divide(pc.field("second") - time_bins.first_second, time_bins.bin_seconds)


def _grouped(dataset: Any, keys: dict[str, Any], values: dict[str, str]) -> Any:
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


def _split(table: Any, column: str) -> dict[str, Any]:
    return {name: table.filter(pc.field(column) == name) for name in sorted(pc.unique(table[column]).to_pylist())}


def _filled(table: Any, bins: int) -> Int64s:
    # A bin without a row had no messages: a stall must show as zero, not as a line drawn across it.
    messages = np.zeros(bins, np.int64)
    messages[table["bin"].to_numpy()] = table["messages"].to_numpy()
    return messages


def _counts(table: Any, *, one_bin: bool = False) -> HistogramCounts:
    keys = ["bucket"] if one_bin else ["bin", "bucket"]
    merged = table.group_by(keys, use_threads=False).aggregate([("count", "sum"), ("max_ns", "max")])
    merged = merged.sort_by([(key, "ascending") for key in keys])
    bucket = merged["bucket"].to_numpy().astype(np.int64)
    return HistogramCounts(
        bin=np.zeros_like(bucket) if one_bin else merged["bin"].to_numpy().astype(np.int64),
        bucket=bucket,
        count=merged["count_sum"].to_numpy().astype(np.int64),
        max_ns=merged["max_ns_max"].to_numpy().astype(np.int64),
    )


def _ranges(dataset: Any) -> list[Ranges]:
    if dataset is None:
        return []
    keys = ("subscription", "sender", "first_seq", "last_seq")
    order = [(key, "ascending") for key in keys]
    first: dict[str, Any] = {}
    totals: dict[str, int] = {}
    for batch in dataset.to_batches(columns=["kind", *keys]):
        for kind, rows in _split(pa.Table.from_batches([batch]), "kind").items():
            totals[kind] = totals.get(kind, 0) + rows.num_rows
            kept = pa.concat_tables([first[kind], rows]) if kind in first else rows
            first[kind] = kept.sort_by(order).slice(0, RANGES_SHOWN)
    return [Ranges(kind, totals[kind], first[kind].to_pylist()) for kind in sorted(first)]
