"""What does one foreign format say about its files, and what comes out of reading them?

The values that pass between the job and the formats. A format recognises its files by their first bytes and turns them
into frames with the columns of the recording's tables; what it cannot read it hands over as rejects. Does nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from crescendo.record.manifest import ConnectionRecord, PeerRecord

HOST = "imported"
"""Where the rows were written, as far as an import can know."""

GROUP = "imported"
EMPTY = "empty"
"""The kind of a file without a byte in it: it belongs to every format and holds nothing."""

SOURCE, LINE, REASON, TEXT = "source", "line", "reason", "text"
REJECT_DDL = f"{SOURCE} INT, {LINE} BIGINT, {REASON} STRING, {TEXT} STRING"

Event = tuple[str, str, str]
"""Source, kind and detail (JSON) of something that holds for the whole run."""


@dataclass(frozen=True)
class SourceFile:
    """One file as it was found, and a plain copy of it under a name without surprises."""

    number: int
    path: Path
    label: str  # the end of its path, as much of it as tells it apart from the others
    folder: str  # the same of the directory it lies in
    kind: str
    head: bytes
    octets: int
    sha256: str
    staged: Path
    fault: str = ""  # why its end is missing, where a compressed file broke off


@dataclass(frozen=True)
class ImportOptions:
    """What only the person can know."""

    period_ns: int = 60 * 10**9  # of sums over time, where a format has them
    clock_bound_ns: int | None = None  # how far apart the clocks were; None: no better than the stamps' own resolution


@dataclass(frozen=True)
class Workspace:
    """Where the work is done: a session, a directory that disappears afterwards, and somebody to tell."""

    spark: SparkSession
    folder: Path
    progress: Callable[[str], None]


@dataclass
class ImportResult:
    """Rows for tables and lines set aside; nothing has been computed yet."""

    resolution_ns: int  # of the times in these files
    frames: list[tuple[str, DataFrame]] = field(default_factory=list)
    rejects: list[DataFrame] = field(default_factory=list)
    records: dict[int, int] = field(default_factory=dict)  # source number -> lines or binary records in it
    connections: list[ConnectionRecord] = field(default_factory=list)
    peers: list[PeerRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)  # what these files cannot tell

    def add(self, other: "ImportResult") -> None:
        self.resolution_ns = max(self.resolution_ns, other.resolution_ns)
        for name in ("frames", "rejects", "connections", "peers", "events"):
            getattr(self, name).extend(getattr(other, name))
        self.records |= other.records
        self.caveats += [caveat for caveat in other.caveats if caveat not in self.caveats]


@dataclass(frozen=True)
class Format:
    """One entry of the registry."""

    name: str
    expected: str  # completes the sentence "expected …"
    kind_of: Callable[[str, bytes], str | None]  # file name and first bytes -> kind, None when it is none of ours
    read_sources: Callable[[Workspace, list[SourceFile], ImportOptions], ImportResult]


def first_line(head: bytes) -> str:
    """The first line that says anything."""
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    return next((line for line in lines if line), "")


def peer(name: str, role: str) -> PeerRecord:
    """A peer whose file is all that is left of it."""
    return PeerRecord(id=name, role=role, host=HOST, pid=0, ended="finished")


def connection(number: int, role: str, name: str, destination: str) -> ConnectionRecord:
    # No address may contain white space: the pipeline lists them line by line.
    destination = "".join("_" if character.isspace() else character for character in destination)
    address = f"queue://{destination}"
    return ConnectionRecord(number, role, name, GROUP, address, destination, address if role == "receiver" else "")
