"""How are the tables of an analysed run read?

As typed rows, if a table is small; as an Arrow dataset, to aggregate a large one while scanning it. A missing table is
empty. A table that exists but cannot be read is the user's problem: ConfigError names it and the cure. Never writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.record.contained_files import contained_files
from crescendo.record.summary import TABLES_DIR
from crescendo.record.table_types import RowT, Table

MAX_ROWS = 2_000_000
"""More rows than this are not read into memory. The pipeline keeps its small tables below that."""


def rows(run_dir: Path, table: Table[RowT]) -> list[RowT]:
    """All rows of a small table. Raises ConfigError if it exists but cannot be read, or has too many rows."""
    with reading(run_dir, table):
        dataset = table_dataset(run_dir, table)
        return [] if dataset is None else dataset_rows(dataset, table, str(table_dir(run_dir, table)))


def dataset_rows(dataset: ds.Dataset, table: Table[RowT], where: str) -> list[RowT]:
    """All rows of the files of a small table. Raises ConfigError if they are too many."""
    if (found := dataset.count_rows()) > MAX_ROWS:
        raise ConfigError(
            f"{where}: {found:,} rows are too many to read at once, the limit is {MAX_ROWS:,}; "
            f"aggregate the files with Spark, DuckDB or pyarrow"
        )
    return table.from_columns(dataset.to_table(columns=table.column_names).to_pylist())


def table_dataset(run_dir: Path, table: Table[Any]) -> ds.Dataset | None:
    """The files of a table; None if it is missing. Spark's markers and checksums next to them are not data."""
    files = contained_files(table_dir(run_dir, table), "*.parquet", run_dir)
    return ds.dataset([str(file) for file in files], format="parquet") if files else None


def table_dir(run_dir: Path, table: Table[Any]) -> Path:
    return run_dir / TABLES_DIR / table.name


@contextmanager
def reading(run_dir: Path, table: Table[Any]) -> Iterator[None]:
    """Turns errors while a table is read into one that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, msgspec.ValidationError) as err:
        raise ConfigError(f"{table_dir(run_dir, table)}: cannot be read, analyse the run again: {err}") from err
