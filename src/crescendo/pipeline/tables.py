"""How does a table get to its place, whole or not at all?

Everything is written into a hidden directory beside its place and renamed when it is complete, so a reader finds a
table or none. Large tables are written by Spark; what is as small as the number of connections is written from here.
Reads nothing of what is in them.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from crescendo.record.summary import TABLES_DIR


class Shelf:
    """The tables of one run. A new shelf is empty: tables of two analyses do not stand side by side."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir / TABLES_DIR
        shutil.rmtree(self._dir, ignore_errors=True)
        self._dir.mkdir()

    def write_frame(self, name: str, frame: Callable[[], DataFrame]) -> None:
        """Describe a frame, run its job and keep its rows."""
        frame().write.parquet(str(self._draft(name)))
        self._publish(name)

    def write_rows(self, name: str, schema: pa.Schema, rows: list[dict[str, object]]) -> None:
        self.write_table(name, pa.Table.from_pylist(rows, schema))

    def write_table(self, name: str, table: pa.Table) -> None:
        draft = self._draft(name)
        draft.mkdir()
        pq.write_table(table, draft / "part-00000.parquet", compression="zstd")
        self._publish(name)

    def files(self, name: str) -> list[Path]:
        return sorted((self._dir / name).glob("*.parquet"))

    def remove(self, name: str) -> None:
        shutil.rmtree(self._dir / name, ignore_errors=True)

    def _draft(self, name: str) -> Path:
        return self._dir / f".{name}.tmp"

    def _publish(self, name: str) -> None:
        draft = self._draft(name)
        for checksum in draft.glob(".*.crc"):
            checksum.unlink()
        draft.rename(self._dir / name)
