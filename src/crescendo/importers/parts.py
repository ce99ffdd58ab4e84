"""How do rows become parts of a recording?

Spark writes them to a draft directory; each file is then hashed, named and listed like the part of any peer. Columns
get the order and the types of the schema, and none may be null: a reader refuses anything else. A file without rows
does not become a part. Rejected lines go into JSON lines that people can read. Computes nothing.
"""

import shutil
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, REASON, SOURCE, TEXT, SourceFile
from crescendo.importers.lines import small_frame
from crescendo.record.manifest import JOURNAL, PartRecord, sha256_of
from crescendo.record.schema import F64, TABLES, arrow_schema, spark_ddl
from crescendo.record.schema import TEXT as TEXT_KIND
from crescendo.record.writer import PART_ROWS

PEER = "import"
REJECTED = "rejected"


class PartsWriter:
    """Writes the parts of one recording."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._numbers = dict.fromkeys(TABLES, 0)
        self.parts: list[PartRecord] = []

    def write_journal(self) -> None:
        (self._run_dir / JOURNAL).mkdir()
        lines = b"".join(msgspec.json.encode(part) + b"\n" for part in self.parts)
        (self._run_dir / JOURNAL / f"{PEER}.jsonl").write_bytes(lines)

    def write_frame(self, table: str, frame: DataFrame) -> int:
        """Run the frame's job; returns its rows."""
        draft = self._run_dir / f".{table}.tmp"
        _as_recorded(table, frame).write.option("maxRecordsPerFile", PART_ROWS).parquet(str(draft))
        rows = sum(self.add_file(table, file) for file in sorted(draft.glob("*.parquet")))
        shutil.rmtree(draft)
        return rows

    def write_rows(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Write a few rows from the driver."""
        if rows:
            file = self._run_dir / f".{table}.tmp"
            pq.write_table(pa.Table.from_pylist(rows, arrow_schema(table)), file, compression="zstd")
            self.add_file(table, file)

    def add_file(self, table: str, file: Path) -> int:
        """Move a finished file into the recording and list it; returns its rows."""
        rows: int = pq.ParquetFile(file).metadata.num_rows
        if rows:
            path = f"{table}/{PEER}-{self._numbers[table]:05d}.parquet"
            self._numbers[table] += 1
            (self._run_dir / table).mkdir(exist_ok=True)
            part = PartRecord(path, table, PEER, rows, file.stat().st_size, sha256_of(file))
            file.rename(self._run_dir / path)
            self.parts.append(part)
        return rows

    def rows(self) -> dict[str, int]:
        """Table -> rows, for tables that have any, by name: jobs run side by side and end in any order."""
        counts: dict[str, int] = {}
        for part in self.parts:
            counts[part.table] = counts.get(part.table, 0) + part.rows
        return dict(sorted(counts.items()))

    def time_range(self, columns: Mapping[str, tuple[str, ...]]) -> tuple[int, int] | None:
        """The smallest and the largest value of these columns, from the Parquet footers of the parts."""
        found: list[int] = []
        for part in self.parts:
            metadata = pq.ParquetFile(self._run_dir / part.path).metadata
            names = [column.name for column in TABLES[part.table]]
            for group in range(metadata.num_row_groups):
                for column in columns.get(part.table, ()):
                    statistics = metadata.row_group(group).column(names.index(column)).statistics
                    found += [statistics.min, statistics.max]
        return (min(found), max(found)) if found else None


def write_rejected(run_dir: Path, sources: list[SourceFile], rejects: list[DataFrame]) -> dict[int, int]:
    """Write `rejected/*.jsonl`; returns the number of rejected lines of each source."""
    if not rejects:
        return {}
    spark = rejects[0].sparkSession
    rows = reduce(DataFrame.unionByName, rejects)
    counts = {row[SOURCE]: row["count"] for row in rows.groupBy(SOURCE).count().collect()}
    if counts:
        names = [{SOURCE: source.number, "file": str(source.path)} for source in sources]
        draft = run_dir / f".{REJECTED}.tmp"
        named = rows.join(F.broadcast(small_frame(spark, f"{SOURCE} INT, file STRING", names)), on=SOURCE, how="inner")
        # One sorted partition: people read it, and the same import must give the same file.
        (
            named.repartition(1)
            .sortWithinPartitions(SOURCE, LINE)
            .select("file", LINE, REASON, TEXT)
            .write.option("maxRecordsPerFile", PART_ROWS)
            .json(str(draft))
        )
        (run_dir / REJECTED).mkdir()
        for number, file in enumerate(sorted(draft.glob("*.json"))):
            file.rename(run_dir / REJECTED / f"{number:05d}.jsonl")
        shutil.rmtree(draft)
    return counts


def _as_recorded(table: str, frame: DataFrame) -> DataFrame:
    kinds = dict(column.split() for column in spark_ddl(table).split(", "))
    return frame.select(
        *(
            F.coalesce(F.col(name), _default(kind)).cast(kinds[name]).alias(name)
            for name, kind in ((column.name, column.kind) for column in TABLES[table])
        )
    )


def _default(kind: str) -> Column:
    """The default for a value that the source does not have. It also makes the column non-nullable for Spark."""
    if kind == TEXT_KIND:
        return F.lit("")
    return F.lit(float("nan")) if kind == F64 else F.lit(0)
