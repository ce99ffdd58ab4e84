"""How do rows reach the disk without slowing the load down?

The caller hands over columns, either one array or one number for all rows of a batch; expanding, encoding, hashing
and renaming happen in a background thread. A part is written as `.tmp`, closed, hashed and renamed, and only then
entered into the peer's journal: what the journal names is whole. Nothing is rounded and nothing is dropped; when the
disk refuses, the next call raises LostError.
"""

import queue
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.errors import LostError
from crescendo.record.manifest import JOURNAL, Part, sha256_of
from crescendo.record.schema import NUMPY, TABLES, TEXT, arrow_schema

PART_ROWS = 4_000_000
PART_NS = 8 * 10**9  # ticks come about once a second, so that no part spans more than ten
_QUEUED_PARTS = 4  # then the producer waits: memory stays flat when the disk is slower than the load
_ROW_GROUP = 1_000_000

Batch = tuple[int, tuple[Any, ...]]


class Recorder:
    """Writes the parts of one peer. Called from one thread."""

    def __init__(self, run_dir: Path, peer: str, *, part_rows: int = PART_ROWS, part_ns: int = PART_NS) -> None:
        self._run_dir = run_dir
        self._peer = peer
        self._part_rows = part_rows
        self._part_ns = part_ns
        self._batches: dict[str, list[Batch]] = {table: [] for table in TABLES}
        self._rows: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._opened_ns: dict[str, int] = {}
        self._numbers: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._jobs: queue.Queue[tuple[str, int, int, list[Batch]] | None] = queue.Queue(_QUEUED_PARTS)
        self._failure: BaseException | None = None
        (run_dir / JOURNAL).mkdir(parents=True, exist_ok=True)
        self._journal = (run_dir / JOURNAL / f"{peer}.jsonl").open("ab")
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def append(self, table: str, rows: int, *columns: Any) -> None:
        """Add rows; `columns` are in the order of the schema, each an array of `rows` values or one value for all."""
        self._batches[table].append((rows, columns))
        total = self._rows[table] = self._rows[table] + rows
        if total >= self._part_rows:
            self._cut(table)

    def tick(self, now_ns: int) -> None:
        """Close the parts that have been open long enough. Call about once a second."""
        self._check()
        for table, batches in self._batches.items():
            if batches and now_ns - self._opened_ns.setdefault(table, now_ns) >= self._part_ns:
                self._cut(table)

    def close(self) -> None:
        """Write what is left and wait until it is on disk."""
        for table, batches in self._batches.items():
            if batches:
                self._cut(table)
        self._jobs.put(None)
        self._thread.join()
        self._journal.close()
        self._check()

    def _cut(self, table: str) -> None:
        self._check()
        job = (table, self._numbers[table], self._rows[table], self._batches[table])
        self._batches[table] = []
        self._rows[table] = 0
        self._numbers[table] += 1
        self._opened_ns.pop(table, None)
        self._jobs.put(job)

    def _check(self) -> None:
        if self._failure is not None:
            raise LostError(f"the recording in {self._run_dir} cannot be written: {self._failure}") from self._failure

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._failure is None:
                try:
                    self._write(*job)
                except Exception as err:  # reported by _check in the caller's thread
                    self._failure = err

    def _write(self, table: str, number: int, rows: int, batches: list[Batch]) -> None:
        relative = f"{table}/{self._peer}-{number:05d}.parquet"
        path = self._run_dir / relative
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".tmp")
        write_part(temporary, table, rows, batches)
        part = Part(
            path=relative,
            table=table,
            peer=self._peer,
            rows=rows,
            octets=temporary.stat().st_size,
            sha256=sha256_of(temporary),
        )
        temporary.replace(path)
        self._journal.write(msgspec.json.encode(part) + b"\n")
        self._journal.flush()


def write_part(path: Path, table: str, rows: int, batches: list[Batch]) -> None:
    """Write one Parquet file: delta-encoded integers, zstd."""
    columns = TABLES[table]
    arrays = [_expanded(column.kind, rows, batches, index) for index, column in enumerate(columns)]
    delta = {column.name: "DELTA_BINARY_PACKED" for column in columns if column.kind in {"i16", "i32", "i64"}}
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=arrow_schema(table)),
        path,
        compression="zstd",
        compression_level=1,
        use_dictionary=[column.name for column in columns if column.kind == TEXT],
        column_encoding=delta,
        row_group_size=_ROW_GROUP,
    )


def _expanded(kind: str, rows: int, batches: list[Batch], index: int) -> Any:
    if kind == TEXT:
        texts: list[str] = []
        for count, columns in batches:
            value = columns[index]
            texts.extend([value] * count if isinstance(value, str) else value)
        return pa.array(texts, pa.string())
    values = np.empty(rows, NUMPY[kind])
    position = 0
    for count, columns in batches:
        values[position : position + count] = columns[index]
        position += count
    return pa.array(values)
