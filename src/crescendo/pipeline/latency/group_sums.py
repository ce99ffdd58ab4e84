"""How are the rows of a table added up without holding them all?

Reads a table batch by batch and keeps one row a group. What is held grows with groups (buckets, connections, blocks),
never with messages. Adds, and finds the smallest and the largest; knows nothing of what the columns mean.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.pipeline.columns import COUNT, MAX_NS, MIN_NS, SUM_NS

SAMPLES = {COUNT: "sum", SUM_NS: "sum", MIN_NS: "min", MAX_NS: "max"}
"""How counts of samples add up."""

_EXACT = pa.decimal128(38, 0)


def dataset_of(files: list[Path]) -> ds.Dataset:
    return ds.dataset([str(file) for file in files], format="parquet")


def folded(
    files: list[Path],
    keys: list[str],
    how: dict[str, str] = SAMPLES,
    *,
    where: pc.Expression | None = None,
    made: dict[str, pc.Expression] | None = None,
) -> pa.Table:
    """One row a group, with each column added up as `how` says. `made` says how a key is made of other columns."""
    columns = {name: (made or {}).get(name, pc.field(name)) for name in (*keys, *how)}
    groups = None
    for batch in dataset_of(files).to_batches(columns=columns, filter=where):
        table = pa.Table.from_batches([batch])
        groups = added(table[:0] if groups is None else groups, table, keys, how)
    return groups if groups is not None else dataset_of(files).head(0, columns=columns)


def added(groups: pa.Table, more: pa.Table, keys: list[str], how: dict[str, str] = SAMPLES) -> pa.Table:
    """What both tables say together."""
    table = pa.concat_tables([_wide(groups.select([*keys, *how])), _wide(more.select([*keys, *how]))])
    sums = table.group_by(keys, use_threads=False).aggregate(list(how.items()))
    return sums.select([*keys, *(f"{name}_{way}" for name, way in how.items())]).rename_columns([*keys, *how])


def _wide(table: pa.Table) -> pa.Table:
    """The same rows in columns that tables from any file have in common."""
    # Made anew, since one file says of a column that it holds no nulls and the next one does not. The nanoseconds of a
    # long run together need not fit into 64 bits, and sums of floats would depend on the order of the files.
    columns = {name: table[name] for name in table.column_names}
    if SUM_NS in columns:
        columns[SUM_NS] = columns[SUM_NS].cast(_EXACT)
    return pa.table(columns)
