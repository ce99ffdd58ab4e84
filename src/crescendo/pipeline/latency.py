"""What are the percentiles, and which of them may be told?

Computed from the merged bucket counts of a whole phase, never from other percentiles. A percentile is the upper edge
of its bucket, but never more than the largest latency seen; with fewer than ten samples beyond it, it is withheld.
Reads the histogram table batch by batch: what is held grows with buckets, not with messages or seconds.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.model.histogram import percentile, samples_beyond
from crescendo.model.verdict import LATENCY_KINDS, PERCENTILES, SAMPLES_BEYOND
from crescendo.pipeline.columns import BUCKET, COUNT, KIND, MAX_NS, MIN_NS, PHASE, SUM_NS
from crescendo.record.summary import Latency

Int64s = npt.NDArray[np.int64]

_SUMS = ((COUNT, "sum"), (SUM_NS, "sum"), (MIN_NS, "min"), (MAX_NS, "max"))
_KEYS = (PHASE, KIND, BUCKET)


def latencies(files: list[Path], phases: list[str]) -> list[Latency]:
    """One row per phase and kind that has samples, phases in the order given."""
    merged = _merged(files)
    if merged is None:
        return []
    rows = []
    for phase in phases:
        for kind in LATENCY_KINDS:
            chosen = merged.filter((ds.field(PHASE) == phase) & (ds.field(KIND) == kind))
            if chosen.num_rows:
                rows.append(_latency(phase, kind, chosen))
    return rows


def _merged(files: list[Path]) -> pa.Table | None:
    """The counts of each bucket over all seconds."""
    merged = None
    columns = [*_KEYS, *(name for name, _ in _SUMS)]
    for batch in ds.dataset([str(file) for file in files], format="parquet").to_batches(columns=columns):
        table = pa.Table.from_batches([batch])
        # As a float: the nanoseconds of a long run together need not fit into 64 bits.
        total = table[SUM_NS].cast(pa.float64(), safe=False)
        table = table.set_column(table.column_names.index(SUM_NS), SUM_NS, total)
        table = table if merged is None else pa.concat_tables([merged, table.select(merged.column_names)])
        grouped = table.group_by(list(_KEYS), use_threads=False).aggregate(list(_SUMS))
        merged = grouped.rename_columns({f"{name}_{how}": name for name, how in _SUMS})
    return merged


def _latency(phase: str, kind: str, counts: pa.Table) -> Latency:
    buckets, samples = _array(counts, BUCKET), _array(counts, COUNT)
    count, max_ns = int(samples.sum()), int(_array(counts, MAX_NS).max())
    return Latency(
        phase=phase,
        kind=kind,
        count=count,
        min_ns=int(_array(counts, MIN_NS).min()),
        max_ns=max_ns,
        mean_ns=float(counts[SUM_NS].to_numpy().sum()) / count,
        negative=int(samples[buckets < 0].sum()),
        percentiles_ns={
            name: min(percentile(buckets, samples, percent), max_ns)
            if samples_beyond(count, percent) >= SAMPLES_BEYOND
            else None
            for name, percent in PERCENTILES.items()
        },
    )


def _array(counts: pa.Table, column: str) -> Int64s:
    values: Int64s = counts[column].to_numpy().astype(np.int64)
    return values
