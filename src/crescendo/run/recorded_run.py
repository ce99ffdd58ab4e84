"""What can a program read from a recording?

The manifest, the summary, the tables of the analysis and the recorded rows, as Arrow data or as Spark frames. Reads a
part of the recording only when it is asked for it, and only intact parts. Changes nothing.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.record.contained_files import contained_files
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.reader import Recording
from crescendo.record.reader import open_recording as checked_recording
from crescendo.record.schema import RECEIVED, TABLES, arrow_schema
from crescendo.record.summary import TABLES_DIR, Summary, read_summary

if TYPE_CHECKING:
    from crescendo.pipeline.spark.spark_types import DataFrame, SparkSession


class RecordedRun(os.PathLike[str]):
    """The recording of one run. Wherever a run is expected as a path, this can be given."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest: Manifest = read_manifest(self.path)
        """The experiment, the system, the peers, the phases, and how the run ended."""

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RecordedRun({str(self.path)!r})"

    @property
    def summary(self) -> Summary:
        """Verdict, rate, latency and ledger. Raises ConfigError when the run was not analysed yet."""
        return read_summary(self.path)

    @property
    def tables(self) -> list[str]:
        """The names of the tables that the analysis wrote."""
        folders = (self.path / TABLES_DIR).glob("*/")
        return sorted(folder.name for folder in folders if any(folder.glob("*.parquet")))

    @property
    def damaged(self) -> dict[str, str]:
        """The files whose rows are left out because they are missing or changed, and what is wrong with each."""
        return self._checked.damaged

    def table(self, name: str) -> pa.Table:
        """One table of the analysis, such as `latency`; docs/pipeline.md describes them all."""
        known = self.tables
        if name not in known:
            read_summary(self.path)  # a run without summary has no tables, and the message says so
            raise ConfigError(f"{self.path}: no table is called {name!r}; {listing(name, known)}")
        try:
            return _dataset(self._table_files(name)).to_table()
        except (pa.ArrowException, OSError) as err:
            raise ConfigError(f"{self.path / TABLES_DIR / name}: cannot be read, analyse the run again: {err}") from err

    def messages(
        self, table: str = RECEIVED, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """The recorded rows, batch by batch: `received`, `sent`, `settled`, or another table of the recording.

        columns: read only these. where: read only the rows that satisfy this, e.g. pyarrow.compute.field("size") > 99.
        Memory holds a few batches at a time; `read_all()` of the reader makes one table of them.
        """
        if table not in TABLES:
            raise ConfigError(f"a recording has no table {table!r}; {listing(table, TABLES)}")
        schema = arrow_schema(table)
        if unknown := [name for name in columns or () if name not in schema.names]:
            raise ConfigError(f"{table} has no column {unknown[0]!r}; {listing(unknown[0], schema.names)}")
        files = self._checked.files(table)
        rows = ds.dataset(files, schema=schema, format="parquet") if files else ds.dataset(schema.empty_table())
        try:
            return rows.scanner(columns=None if columns is None else list(columns), filter=where).to_reader()
        except pa.ArrowException as err:
            raise ConfigError(f"where: does not fit the columns of {table}: {err}") from err

    def spark(self, session: "SparkSession", table: str = RECEIVED) -> "DataFrame":
        """The recorded rows, or a table of the analysis, as a frame of your own Spark session."""
        from crescendo.pipeline.source.run_frames import computed_frame, recorded_frame

        if table in TABLES:
            return recorded_frame(session, self.path, table)
        if table not in self.tables:
            known = [*TABLES, *self.tables]
            raise ConfigError(f"{self.path}: no table is called {table!r}; {listing(table, known)}")
        return computed_frame(session, self._table_files(table))

    def _table_files(self, name: str) -> list[Path]:
        # Spark writes markers and checksums next to its parts; only the parts are data.
        return contained_files(self.path / TABLES_DIR / name, "*.parquet", self.path)

    @cached_property
    def _checked(self) -> Recording:
        """Compares every part with its hash, so only when rows are read."""
        return checked_recording(self.path)


def open_recording(run: str | os.PathLike[str]) -> RecordedRun:
    """Open the recording of a run, whatever state it is in. Raises ConfigError when there is none."""
    return RecordedRun(run)


def _dataset(files: list[Path]) -> ds.Dataset:
    return ds.dataset([str(file) for file in files], format="parquet")
