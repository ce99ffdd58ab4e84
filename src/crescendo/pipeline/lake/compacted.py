"""How are ten thousand runs read without opening ten thousand files?

From a compacted copy of a lake: `COPY/<table>/experiment=<name>/part-<n>.parquet`, with the run as a column instead of
a directory, so that a query opens a few files per experiment. A copy is written beside its place and renamed, so it is
there as a whole or not at all; it is only read, and rebuilt when the lake has grown. Analyses no runs.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.lake import COMPACTED, RUNS, Lake, LakeEntry, entry_of, escaped, unescaped
from crescendo.pipeline.lake.lake_lock import exclusive
from crescendo.pipeline.storage.locations import LAKE_MARKER, Directory, Location

_RUN = "run"
_MAX_ROWS, _MAX_FILES = 1_000_000, 2_000  # that are held in memory for one part
_BATCH_ROWS = 500  # each row of `runs` has two documents


@dataclass(frozen=True)
class CompactedLake:
    """What a copy has."""

    runs: int
    files_before: int
    files: int


def compact_lake(source: Path, copy: Path, progress: Callable[[str], None]) -> CompactedLake:
    """Copy every complete run of a lake; an earlier copy at this place is replaced."""
    location = Directory(source)
    marker = location.read(LAKE_MARKER)
    if marker is None:
        raise ConfigError(f"{source}: not a lake, it has no {LAKE_MARKER}; `crescendo analyze runs` makes one")
    if marker == COMPACTED:
        raise ConfigError(f"{source}: is a compacted copy already; name the lake that it was made of")
    if copy.exists() and any(copy.iterdir()) and Directory(copy).read(LAKE_MARKER) != COMPACTED:
        raise ConfigError(f"{copy}: is not empty, and not a compacted lake; choose another directory")
    draft = copy.parent / f".{copy.name}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    with exclusive(source):
        copied = _Copying(Lake(location), draft, progress).copy()
    (draft / LAKE_MARKER).write_bytes(COMPACTED)
    former = copy.parent / f".{copy.name}.old"
    shutil.rmtree(former, ignore_errors=True)
    if copy.exists():
        copy.rename(former)
    draft.rename(copy)
    shutil.rmtree(former, ignore_errors=True)
    return copied


class _Copying:
    def __init__(self, lake: Lake, draft: Path, progress: Callable[[str], None]) -> None:
        self._lake, self._draft, self._progress = lake, draft, progress
        self._read = self._written = 0

    def copy(self) -> CompactedLake:
        runs = 0
        self._draft.mkdir(parents=True)
        for experiment in self._lake.experiments():
            complete = self._lake.runs_of(experiment)
            runs += len(complete)
            for table in self._tables():
                self._progress(f"{experiment}: {table}")
                self._copy_table(table, experiment, complete)
        return CompactedLake(runs, self._read, self._written)

    def _tables(self) -> list[str]:
        return [name for name in self._lake.location.names("") if not name.startswith(".") and name != LAKE_MARKER]

    def _copy_table(self, table: str, experiment: str, runs: list[str]) -> None:
        held: list[pa.Table] = []
        part = rows = 0
        for run in runs:
            folder = f"{table}/experiment={escaped(experiment)}/run={escaped(run)}"
            for file in self._lake.location.local_files(folder):
                found = pq.ParquetFile(file).read()
                held.append(found.append_column(_RUN, pa.array([run] * found.num_rows, pa.string())))
                rows += found.num_rows
                self._read += 1
            if rows >= _MAX_ROWS or len(held) >= _MAX_FILES:
                self._write(table, experiment, part, held)
                held, part, rows = [], part + 1, 0
        if held:
            self._write(table, experiment, part, held)

    def _write(self, table: str, experiment: str, part: int, held: list[pa.Table]) -> None:
        folder = self._draft / table / f"experiment={escaped(experiment)}"
        folder.mkdir(parents=True, exist_ok=True)
        # Runs of different versions may have different columns; a missing one is null.
        together = pa.concat_tables(held, promote_options="permissive")
        pq.write_table(together, folder / f"part-{part:05d}.parquet", compression="zstd")
        self._written += 1


def lake_entries(location: Location) -> Iterator[LakeEntry]:
    """Every run of a lake or of its compacted copy."""
    if location.read(LAKE_MARKER) != COMPACTED:
        yield from Lake(location).entries()
        return
    for name in location.names(RUNS):
        experiment = unescaped(name.partition("=")[2])
        for file in location.local_files(f"{RUNS}/{name}"):
            for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    yield entry_of(experiment, row[_RUN], row)
