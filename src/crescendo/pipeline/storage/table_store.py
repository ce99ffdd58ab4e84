"""How does a table get to its place, whole or not at all?

Everything is written into a hidden directory beside its place and renamed when it is complete, so a reader finds a
table or none. In an object store a rename copies file by file; there only the summary, which is written when all tables
are in place, tells that they are whole. Large tables are written by Spark; what is as small as the number of
connections is written from here. Reads nothing of what is in them.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.record.summary import TABLES_DIR

ONLY_PART = "part-00000.parquet"


class TableStore:
    """The tables of one run. A new shelf is empty: tables of two analyses do not stand side by side."""

    def __init__(self, place: Location | Path) -> None:
        self._place: Location = Directory(place) if isinstance(place, Path) else place
        # The tasks of an analysis that was killed may outlive it for a moment: what they still write is not ours.
        self._mark = uuid.uuid4().hex[:12]
        self._place.remove(TABLES_DIR)
        self._place.make(TABLES_DIR)

    def write_frame(self, name: str, frame: Callable[[], DataFrame]) -> None:
        """Describe a frame, run its job and keep its rows."""
        frame().write.parquet(self._place.at(self._draft(name)))
        self._publish(name)

    def write_rows(self, name: str, schema: pa.Schema, rows: list[dict[str, object]]) -> None:
        self.write_table(name, pa.Table.from_pylist(rows, schema))

    def write_table(self, name: str, table: pa.Table) -> None:
        draft = self._draft(name)
        self._place.make(draft)
        self._place.write(f"{draft}/{ONLY_PART}", as_parquet(table))
        self._publish(name)

    def files(self, name: str) -> list[Path]:
        """The files of a table, on this machine."""
        return self._place.local_files(f"{TABLES_DIR}/{name}")

    def remove(self, name: str) -> None:
        self._place.remove(f"{TABLES_DIR}/{name}")

    def _draft(self, name: str) -> str:
        return f"{TABLES_DIR}/.{name}.{self._mark}.tmp"

    def _publish(self, name: str) -> None:
        self._place.rename(self._draft(name), f"{TABLES_DIR}/{name}")


def as_parquet(table: pa.Table) -> bytes:
    """A small table as the bytes of one file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content
