"""How is a part written as a Parquet file at a cost per run, not per row?

Parquet can express "this value a hundred thousand times" or "count up from here" in a few bytes, but a writer that is
given rows has to discover that row by row. This one is given runs. One row group per block, version 1 data pages, no
statistics: pyarrow, DuckDB and Spark read the same values as from a file that pyarrow wrote. Reads nothing, and knows
neither journals nor temporary names.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from crescendo.record.encoding.column_buffer import ColumnData, CountColumn, RunLengthColumn
from crescendo.record.encoding.pages import Chunk, counts_chunk, find_runs, rows_chunks, runs_chunk
from crescendo.record.encoding.thrift import TRUE, Coded, byte, i32, i64, list_of, struct, text
from crescendo.record.schema import F64, I16, I32, I64, TABLES, TEXT, Column, arrow_schema

_MAGIC = b"PAR1"
_VERSION = 2
_CREATOR = "crescendo version 1"
_PHYSICAL = {I16: 1, I32: 1, I64: 2, F64: 5, TEXT: 6}  # INT32, INT64, DOUBLE, BYTE_ARRAY
_REQUIRED = 0
# The meaning of a column beyond its physical type: the converted type (field 6) and the logical type (field 10).
_MEANING: dict[str, dict[int, Coded]] = {
    I16: {6: i32(16), 10: struct({10: struct({1: byte(16), 2: TRUE})})},
    TEXT: {6: i32(0), 10: struct({1: struct({})})},
}


class PartWriter:
    """Writes one file of one table, block by block. A file that was not closed is not valid Parquet."""

    def __init__(self, path: Path, table: str) -> None:
        self._columns = TABLES[table]
        self._schema = arrow_schema(table)
        self._groups: list[Coded] = []
        self._file = path.open("wb")
        self._octets = 0
        self.rows = 0
        self._put(_MAGIC)

    def write(self, rows: int, block: Sequence[ColumnData]) -> None:
        """Add a row group; the columns of the block are in schema order."""
        if not rows:
            return
        begin = self._octets
        chunks = self._chunks(block)
        columns = []
        for column, chunk in zip(self._columns, chunks, strict=True):
            columns.append(_column_of(column, rows, chunk, self._octets))
            self._put(chunk.octets)
        self._groups.append(
            struct(
                {
                    1: list_of(columns),
                    2: i64(sum(chunk.unpacked_bytes for chunk in chunks)),
                    3: i64(rows),
                    5: i64(begin),
                    6: i64(self._octets - begin),
                }
            )
        )
        self.rows += rows

    def close(self) -> None:
        """Write the footer; only now is the file valid Parquet."""
        fields = {1: i32(_VERSION), 2: _schema_of(self._columns), 3: i64(self.rows), 4: list_of(self._groups)}
        footer = struct(fields | {6: text(_CREATOR)})[1]
        self._put(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        self._file.close()

    def abandon(self) -> None:
        """Abandon a file that cannot be finished; it stays as it is."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _chunks(self, block: Sequence[ColumnData]) -> list[Chunk]:
        chunks: dict[int, Chunk] = {}
        varying: dict[int, np.ndarray] = {}
        for index, data in enumerate(map(find_runs, block)):
            if isinstance(data, RunLengthColumn):
                chunks[index] = runs_chunk(data)
            elif isinstance(data, CountColumn):
                chunks[index] = counts_chunk(data)
            else:
                varying[index] = data
        if varying:
            schema = pa.schema([self._schema.field(index) for index in varying])
            chunks |= zip(varying, rows_chunks(schema, list(varying.values())), strict=True)
        return [chunks[index] for index in range(len(block))]

    def _put(self, octets: bytes) -> None:
        self._file.write(octets)
        self._octets += len(octets)


def _schema_of(columns: Sequence[Column]) -> Coded:
    root = struct({3: i32(_REQUIRED), 4: text("schema"), 5: i32(len(columns))})
    return list_of([root, *(_leaf_of(column) for column in columns)])


def _leaf_of(column: Column) -> Coded:
    fields = {1: i32(_PHYSICAL[column.kind]), 3: i32(_REQUIRED), 4: text(column.name)}
    return struct(fields | _MEANING.get(column.kind, {}))


def _column_of(column: Column, rows: int, chunk: Chunk, offset: int) -> Coded:
    """The footer's metadata of a chunk that begins at `offset`."""
    fields = {
        1: i32(_PHYSICAL[column.kind]),
        2: list_of([i32(encoding) for encoding in chunk.encodings]),
        3: list_of([text(column.name)]),
        4: i32(chunk.codec),
        5: i64(rows),
        6: i64(chunk.unpacked_bytes),
        7: i64(len(chunk.octets)),
        9: i64(offset + chunk.dictionary_bytes),
    }
    if chunk.dictionary_bytes:
        fields[11] = i64(offset)
    return struct({2: i64(0), 3: struct(fields)})
