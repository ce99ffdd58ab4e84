"""How are the rows of a table summed by group without holding them all?

Reads a table batch by batch and keeps one row per group. Memory grows with the number of groups (buckets, connections,
blocks), never with messages. Takes sums, minima and maxima; knows nothing of what the columns mean.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.pipeline.columns import COUNT, MAX_NS, MIN_NS, SUM_NS

SAMPLES = {COUNT: "sum", SUM_NS: "sum", MIN_NS: "min", MAX_NS: "max"}
"""How to aggregate bucket counts."""

_EXACT = pa.decimal128(38, 0)


def dataset_of(files: list[Path]) -> ds.Dataset:
    return ds.dataset([str(file) for file in files], format="parquet")


def group_sums(
    files: list[Path],
    keys: list[str],
    how: dict[str, str] = SAMPLES,
    *,
    where: pc.Expression | None = None,
    derived: dict[str, pc.Expression] | None = None,
) -> pa.Table:
    """One row per group, with each column aggregated as `how` says. `derived` computes keys from other columns."""
    columns = {name: (derived or {}).get(name, pc.field(name)) for name in (*keys, *how)}
    groups = None
    for batch in dataset_of(files).to_batches(columns=columns, filter=where):
        table = pa.Table.from_batches([batch])
        groups = merged_sums(table[:0] if groups is None else groups, table, keys, how)
    return groups if groups is not None else dataset_of(files).head(0, columns=columns)


def merged_sums(groups: pa.Table, more: pa.Table, keys: list[str], how: dict[str, str] = SAMPLES) -> pa.Table:
    """Both tables together, again one row per group."""
    table = pa.concat_tables(
        [_with_common_types(groups.select([*keys, *how])), _with_common_types(more.select([*keys, *how]))]
    )
    sums = table.group_by(keys, use_threads=False).aggregate(list(how.items()))
    return sums.select([*keys, *(f"{name}_{way}" for name, way in how.items())]).rename_columns([*keys, *how])


def _with_common_types(table: pa.Table) -> pa.Table:
    """The same rows, with column types that tables from all files share."""
    # A new table, since files differ in whether they declare a column non-null. Summed nanoseconds of a long run may
    # exceed 64 bits, and sums of floats would depend on the order of the files.
    columns = {name: table[name] for name in table.column_names}
    if SUM_NS in columns:
        columns[SUM_NS] = columns[SUM_NS].cast(_EXACT)
    return pa.table(columns)
