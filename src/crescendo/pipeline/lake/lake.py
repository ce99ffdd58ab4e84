"""How are the tables of many runs laid out together?

`LAKE/<table>/experiment=<name>/run=<run>/*.parquet`, so that Spark, DuckDB and others discover the partitions. The
table `runs` has one row per run with its manifest and its whole summary. That row is removed first and written last, so
a run that has one has all its tables. Computes nothing: the tables come from the runs.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.errors import ConfigError
from crescendo.pipeline.receipts import Receipt
from crescendo.pipeline.storage.locations import LAKE_MARKER, Location
from crescendo.pipeline.storage.table_store import ONLY_PART, as_parquet
from crescendo.record.manifest import Manifest, parse_manifest
from crescendo.record.summary import TABLES_DIR, Summary

RUNS = "runs"
FORMAT = 1
COMPACTED = msgspec.json.encode({"format": FORMAT, "compacted": True})
"""The marker of a compacted copy, see `compacted`."""

_ESCAPED_CHARACTERS = frozenset("\"#%'*/:=?\\{}[]^ ")
RUNS_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("path", "fingerprint", "state", "outcome")),
        *((name, pa.int64()) for name in ("tag", "started_ns", "sent", "delivered", "lost", "duplicated")),
        ("full", pa.bool_()), ("offered", pa.float64()), ("sustained", pa.float64()),
        ("tables", pa.list_(pa.string())), ("manifest", pa.string()), ("summary", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class LakeEntry:
    """One run in the lake."""

    experiment: str
    run: str
    path: str  # of the recording at the time of the analysis
    receipt: Receipt
    manifest: Manifest  # without its list of files
    summary: Summary


class Lake:
    """A directory of tables, partitioned by experiment and run."""

    def __init__(self, location: Location) -> None:
        self.location = location

    def open(self) -> None:
        """Create the lake unless it exists. Refuses a directory that holds anything else."""
        marker = self.location.read(LAKE_MARKER)
        if marker is None:
            if any(not name.startswith(".") for name in self.location.names("")):
                raise ConfigError(
                    f"--lake {self.location}: is not empty and not a lake, it has no {LAKE_MARKER}; choose another"
                )
            self.location.make_dir("")
            self.location.write(LAKE_MARKER, msgspec.json.encode({"format": FORMAT}))
        elif marker == COMPACTED:
            raise ConfigError(f"--lake {self.location}: a compacted copy is only read; name the lake it was made of")
        elif marker != msgspec.json.encode({"format": FORMAT}):
            raise ConfigError(f"--lake {self.location}: does not have format {FORMAT}; build a new one elsewhere")

    def experiments(self) -> list[str]:
        names = self.location.names(RUNS)
        return [unescaped(name.partition("=")[2]) for name in names if name.startswith("experiment=")]

    def runs_of(self, experiment: str) -> list[str]:
        names = self.location.names(f"{RUNS}/experiment={escaped(experiment)}")
        return [unescaped(name.partition("=")[2]) for name in names if name.startswith("run=")]

    def entry(self, experiment: str, run: str) -> LakeEntry | None:
        """The entry of a run; None if the lake does not have the run, or not all of it."""
        for file in self.location.local_files(_folder(RUNS, experiment, run)):
            row = pq.ParquetFile(file).read().to_pylist()[0]
            return entry_of(experiment, run, row)
        return None

    def entries(self) -> Iterator[LakeEntry]:
        """Every run of the lake, by experiment and name."""
        for experiment in self.experiments():
            for run in self.runs_of(experiment):
                if (found := self.entry(experiment, run)) is not None:
                    yield found

    def folder(self, table: str, entry: LakeEntry) -> str:
        """The partition of one run in one table."""
        return _folder(table, entry.experiment, entry.run)

    def add_run(self, entry: LakeEntry, source: Location) -> None:
        """Copy the tables of an analysed run into the lake and replace those it had there."""
        self.location.remove(self.folder(RUNS, entry))
        names = [name for name in self.location.names("") if not name.startswith(".")]
        for table in (name for name in names if name not in {LAKE_MARKER, RUNS}):
            if table not in entry.receipt.tables:
                self.location.remove(self.folder(table, entry))
        for table in entry.receipt.tables:
            draft = self._draft(table, entry)
            for file in source.local_files(f"{TABLES_DIR}/{table}"):
                self.location.put(file, f"{draft}/{file.name}")
            self._publish(draft, self.folder(table, entry))
        draft = self._draft(RUNS, entry)
        self.location.write(f"{draft}/{ONLY_PART}", as_parquet(_row(entry)))
        self._publish(draft, self.folder(RUNS, entry))

    def _draft(self, table: str, entry: LakeEntry) -> str:
        """A hidden directory next to the partition of a run. Removes drafts left by a killed analysis."""
        folder = self.folder(table, entry)
        parent, _, name = folder.rpartition("/")
        for leftover in self.location.names(parent):
            if leftover.startswith(f".{name}.") and leftover.endswith(".tmp"):
                self.location.remove(f"{parent}/{leftover}")
        draft = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.tmp"
        self.location.make_dir(draft)
        return draft

    def _publish(self, draft: str, folder: str) -> None:
        self.location.remove(folder)
        self.location.rename(draft, folder)


def entry_of(experiment: str, run: str, row: Mapping[str, Any]) -> LakeEntry:
    """An entry from its row of the table `runs`."""
    receipt = Receipt(row["fingerprint"], row["full"], list(row["tables"]))
    summary = msgspec.json.decode(row["summary"], type=Summary)
    return LakeEntry(experiment, run, row["path"], receipt, parse_manifest(row["manifest"]), summary)


def escaped(name: str) -> str:
    """A name as the value of a partition. Spark and DuckDB decode %XX."""
    return "".join(f"%{ord(one):02X}" if one in _ESCAPED_CHARACTERS or ord(one) < 32 else one for one in name)


def unescaped(value: str) -> str:
    head, *rest = value.split("%")
    return head + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)


def _folder(table: str, experiment: str, run: str) -> str:
    return f"{table}/experiment={escaped(experiment)}/run={escaped(run)}"


def _row(entry: LakeEntry) -> pa.Table:
    summary, receipt, total = entry.summary, entry.receipt, entry.summary.total
    row = {
        "path": entry.path,
        "fingerprint": receipt.fingerprint,
        "state": summary.state,
        "outcome": summary.verdict.outcome.value,
        "tag": entry.manifest.tag,
        "started_ns": entry.manifest.started_ns,
        "sent": total.sent,
        "delivered": total.delivered,
        "lost": total.lost,
        "duplicated": total.duplicated,
        "full": receipt.full,
        "offered": summary.rate.offered,
        "sustained": summary.rate.sustained,
        "tables": receipt.tables,
        "manifest": msgspec.json.encode(entry.manifest).decode(),
        "summary": msgspec.json.encode(summary).decode(),
    }
    return pa.Table.from_pylist([row], RUNS_SCHEMA)
