"""How do rows reach the disk without slowing down the load?

The caller's values are copied into blocks of fixed size; a background thread encodes full blocks and returns them for
reuse, so memory stays flat. A part is written as `.tmp`, closed, hashed, synced and renamed, and only then entered in
the peer's journal: every part in a journal is complete, and stays so after a power cut. Nothing is rounded and nothing
is dropped; after a write error, the next call raises LostError.
"""

import os
import queue
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from crescendo.model.errors import LostError
from crescendo.record.durable import make_directory, publish, sync
from crescendo.record.encoding.column_buffer import Block, compact
from crescendo.record.encoding.parquet import PartWriter
from crescendo.record.manifest import JOURNAL, PartRecord, sha256_of
from crescendo.record.schema import TABLES

PART_ROWS = 4_000_000
PART_NS = 8 * 10**9  # with ticks about once a second, no part spans more than ten seconds
BLOCK_ROWS = 131_072  # reused: in fresh memory, filling and encoding took 2.5 times as long
_SEQUENCES = (np.ndarray, range)
_SINGLES = 1 << 13  # values, over all columns
_QUEUED_BLOCKS = 64  # beyond this the producer blocks: memory stays flat when the disk is slower than the load


class RowSink(Protocol):
    """Where rows go: the part of a recorder that producers of rows use."""

    def append(self, table: str, rows: int, *columns: object) -> None: ...

    def append_one(self, table: str, *values: int) -> None:
        self.append(table, 1, *values)

    def tick(self, now_ns: int) -> None: ...


class PartFile:
    """One part while it is being written."""

    def __init__(self, run_dir: Path, peer: str, number: int, table: str, *, durable: bool) -> None:
        self._run_dir = run_dir
        self._durable = durable
        self._table = table
        self._peer = peer
        self._path = f"{table}/{peer}-{number:05d}.parquet"
        self._temporary = (run_dir / self._path).with_suffix(".tmp")
        make_directory(self._temporary.parent, durable=durable)
        self._writer = PartWriter(self._temporary, table)

    @property
    def rows(self) -> int:
        return self._writer.rows

    def write(self, block: Block) -> None:
        self._writer.write(block.rows, block.columns())

    def abandon(self) -> None:
        """Abandon a part that cannot be finished; its temporary file stays as it is."""
        self._writer.abandon()

    def finish(self) -> PartRecord:
        """Close, hash, sync and rename; only now does the part exist."""
        self._writer.close()
        part = PartRecord(
            path=self._path,
            table=self._table,
            peer=self._peer,
            rows=self.rows,
            octets=self._temporary.stat().st_size,
            sha256=sha256_of(self._temporary),
        )
        publish(self._temporary, self._run_dir / self._path, durable=self._durable)
        return part


@dataclass(frozen=True)
class _ClosePart:
    """A job for the background thread: close the open part of this table."""

    table: str


class Recorder(RowSink):
    """Writes the parts of one peer. Called from one thread."""

    def __init__(
        self,
        run_dir: Path,
        peer: str,
        *,
        part_rows: int = PART_ROWS,
        part_ns: int = PART_NS,
        block_rows: int = BLOCK_ROWS,
        durable: bool = True,
    ) -> None:
        self._run_dir = run_dir
        self._peer = peer
        self._durable = durable
        self._part_rows = part_rows
        self._part_ns = part_ns
        self._block_rows = min(block_rows, part_rows)
        self._blocks: dict[str, Block] = {}
        self._singles: dict[str, array[int]] = {table: array("q") for table in TABLES}  # row by row
        self._spare: dict[str, queue.SimpleQueue[Block]] = {table: queue.SimpleQueue() for table in TABLES}
        self._opened_ns: dict[str, int] = {}
        self._jobs: queue.Queue[Block | _ClosePart | None] = queue.Queue(_QUEUED_BLOCKS)
        self._failure: BaseException | None = None
        try:
            make_directory(run_dir / JOURNAL, durable=durable)
            self._journal = (run_dir / JOURNAL / f"{peer}.jsonl").open("ab")
            if durable:
                sync(run_dir / JOURNAL)
        except OSError as err:
            raise LostError(f"the recording in {run_dir} cannot be written: {err}") from err
        self._parts: dict[str, PartFile] = {}
        self._numbers: dict[str, int] = dict.fromkeys(TABLES, 0)
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def append(self, table: str, rows: int, *values: Any) -> None:
        """Add rows. Values are in schema order: an array or range with one value per row, or one value for all rows."""
        if not rows:
            return
        if self._singles[table]:
            self._flush_singles(table)
        self._fill(table, rows, values)

    def append_one(self, table: str, *values: int) -> None:
        """Add a row of integers. Rows are collected first: a block takes a thousand rows nearly as fast as one."""
        singles = self._singles[table]
        singles.extend(values)
        if len(singles) >= _SINGLES:
            self._flush_singles(table)

    def _flush_singles(self, table: str) -> None:
        rows = np.frombuffer(self._singles[table], np.int64).reshape(-1, len(TABLES[table]))
        self._singles[table] = array("q")
        self._fill(table, len(rows), tuple(map(compact, rows.T)))

    def _fill(self, table: str, rows: int, values: tuple[Any, ...]) -> None:
        block = self._blocks.get(table) or self._new_block(table)
        while rows > (free := block.capacity - block.rows):
            block.fill(free, tuple(value[:free] if isinstance(value, _SEQUENCES) else value for value in values))
            self._enqueue_block(table)
            values = tuple(value[free:] if isinstance(value, _SEQUENCES) else value for value in values)
            rows -= free
            block = self._new_block(table)
        block.fill(rows, values)

    def tick(self, now_ns: int) -> None:
        """Close parts that have been open long enough. Call about once a second."""
        self._check()
        self._flush_all_singles()
        for table in list(self._blocks):
            if now_ns - self._opened_ns.setdefault(table, now_ns) >= self._part_ns:
                del self._opened_ns[table]
                self._enqueue_block(table)
                self._jobs.put(_ClosePart(table))

    def flush(self) -> None:
        """Close every part that is open: what was recorded so far will soon be on disk."""
        self._check()
        self._flush_all_singles()
        self._opened_ns.clear()
        for table in list(self._blocks):
            self._enqueue_block(table)
            self._jobs.put(_ClosePart(table))

    def close(self) -> None:
        """Write the remaining rows and wait until they are on disk. Ends the thread even after a write error."""
        self._flush_all_singles()
        for table in list(self._blocks):
            self._jobs.put(self._blocks.pop(table))
            self._jobs.put(_ClosePart(table))
        self._jobs.put(None)
        self._thread.join()
        try:
            self._journal.close()
        except OSError as err:
            self._failure = self._failure or err
        self._check()

    def _flush_all_singles(self) -> None:
        for table in [table for table, singles in self._singles.items() if singles]:
            self._flush_singles(table)

    def _new_block(self, table: str) -> Block:
        try:
            block = self._spare[table].get_nowait()
            block.clear()
        except queue.Empty:
            block = Block(table, self._block_rows)
        self._blocks[table] = block
        return block

    def _enqueue_block(self, table: str) -> None:
        self._check()
        self._jobs.put(self._blocks.pop(table))

    def _check(self) -> None:
        if self._failure is not None:
            raise LostError(f"the recording in {self._run_dir} cannot be written: {self._failure}") from self._failure

    # -- in the background thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._failure is None:
                try:
                    self._write(job)
                except Exception as err:  # _check raises it again in the caller's thread
                    self._failure = err
        for part in self._parts.values():
            part.abandon()  # only after a failure: otherwise close has finished every part

    def _write(self, job: Block | _ClosePart) -> None:
        if isinstance(job, _ClosePart):
            self._finish(job.table)
            return
        part = self._parts.get(job.table)
        if part is None:
            part = self._parts[job.table] = PartFile(
                self._run_dir, self._peer, self._numbers[job.table], job.table, durable=self._durable
            )
            self._numbers[job.table] += 1
        part.write(job)
        self._spare[job.table].put(job)
        if part.rows > self._part_rows - self._block_rows:
            self._finish(job.table)

    def _finish(self, table: str) -> None:
        part = self._parts.pop(table, None)
        if part is not None:
            self._journal.write(msgspec.json.encode(part.finish()) + b"\n")
            self._journal.flush()
            if self._durable:
                os.fsync(self._journal.fileno())
