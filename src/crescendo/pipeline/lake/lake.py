"""How do the tables of many runs come to lie together?

`LAKE/<table>/experiment=<name>/run=<run>/*.parquet`, as Spark, DuckDB and others find partitions by themselves, and in
the table `runs` one row a run: what it was, and its whole summary. That row is taken away first and put back last, so a
run that has one has all its tables. Computes nothing: tables come from the runs.
"""

import uuid
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.receipts import Receipt
from crescendo.pipeline.storage.locations import LAKE_MARKER, Location
from crescendo.pipeline.storage.table_store import ONLY_PART, as_parquet
from crescendo.record.manifest import Manifest
from crescendo.record.summary import TABLES_DIR, Summary

RUNS = "runs"
FORMAT = 1

_OWN_CHARACTERS = frozenset("\"#%'*/:=?\\{}[]^ ")
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
    path: str  # where its recording was when it was analysed
    receipt: Receipt
    manifest: Manifest  # without its list of files
    summary: Summary


class Lake:
    """A directory of tables by experiment and run."""

    def __init__(self, place: Location) -> None:
        self.place = place

    def open(self) -> None:
        """Make it, unless it is there. Refuses a directory in which something else is."""
        marker = self.place.read(LAKE_MARKER)
        if marker is None:
            if any(not name.startswith(".") for name in self.place.names("")):
                raise ConfigError(
                    f"--lake {self.place}: is not empty and no lake, it has no {LAKE_MARKER}; choose another"
                )
            self.place.make_dir("")
            self.place.write(LAKE_MARKER, msgspec.json.encode({"format": FORMAT}))
        elif marker != msgspec.json.encode({"format": FORMAT}):
            raise ConfigError(f"--lake {self.place}: is of another format than {FORMAT}; build a new one elsewhere")

    def experiments(self) -> list[str]:
        return [unescaped(name.partition("=")[2]) for name in self.place.names(RUNS) if name.startswith("experiment=")]

    def runs_of(self, experiment: str) -> list[str]:
        names = self.place.names(f"{RUNS}/experiment={escaped(experiment)}")
        return [unescaped(name.partition("=")[2]) for name in names if name.startswith("run=")]

    def entry(self, experiment: str, run: str) -> LakeEntry | None:
        """What the lake knows of a run; None when it has not got it, or not all of it."""
        for file in self.place.local_files(_folder(RUNS, experiment, run)):
            row = pq.ParquetFile(file).read().to_pylist()[0]
            receipt = Receipt(row["fingerprint"], row["full"], row["tables"])
            manifest = msgspec.json.decode(row["manifest"], type=Manifest)
            summary = msgspec.json.decode(row["summary"], type=Summary)
            return LakeEntry(experiment, run, row["path"], receipt, manifest, summary)
        return None

    def folder(self, table: str, entry: LakeEntry) -> str:
        """Where the rows of one run in one table are."""
        return _folder(table, entry.experiment, entry.run)

    def take(self, entry: LakeEntry, source: Location) -> None:
        """Put the tables of an analysed run into the lake, in place of those it had there."""
        self.place.remove(self.folder(RUNS, entry))
        known = [name for name in self.place.names("") if name not in {LAKE_MARKER, RUNS} and not name.startswith(".")]
        for table in known:
            if table not in entry.receipt.tables:
                self.place.remove(self.folder(table, entry))
        for table in entry.receipt.tables:
            draft = self._draft(table, entry)
            for file in source.local_files(f"{TABLES_DIR}/{table}"):
                self.place.put(file, f"{draft}/{file.name}")
            self._publish(draft, self.folder(table, entry))
        draft = self._draft(RUNS, entry)
        self.place.write(f"{draft}/{ONLY_PART}", as_parquet(_row(entry)))
        self._publish(draft, self.folder(RUNS, entry))

    def _draft(self, table: str, entry: LakeEntry) -> str:
        """A hidden directory beside the place of a run; what a killed analysis left there goes."""
        folder = self.folder(table, entry)
        parent, _, name = folder.rpartition("/")
        for left in self.place.names(parent):
            if left.startswith(f".{name}.") and left.endswith(".tmp"):
                self.place.remove(f"{parent}/{left}")
        draft = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.tmp"
        self.place.make_dir(draft)
        return draft

    def _publish(self, draft: str, folder: str) -> None:
        self.place.remove(folder)
        self.place.rename(draft, folder)


def escaped(name: str) -> str:
    """A name as the value of a partition: Spark and DuckDB turn %XX back into the character."""
    return "".join(f"%{ord(one):02X}" if one in _OWN_CHARACTERS or ord(one) < 32 else one for one in name)


def unescaped(value: str) -> str:
    head, *rest = value.split("%")
    return head + "".join(chr(int(piece[:2], 16)) + piece[2:] for piece in rest)


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
