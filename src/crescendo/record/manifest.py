"""What does this recording contain, which peers wrote it, and is it complete?

The manifest is one JSON file, written when the run begins (state `incomplete`) and again when it ends. A crash in
between leaves a correct manifest: an incomplete recording whose finished parts are listed in its journals.
"""

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from crescendo.model.peer_statistics import PeerStatistics
from crescendo.record.documents import read_document, write_document

FORMAT = 1
MANIFEST = "manifest.json"
JOURNAL = "journal"


class State(StrEnum):
    """How the recording ended."""

    SEALED = "sealed"  # every peer finished and reported it
    INTERRUPTED = "interrupted"  # the user stopped the run
    INCOMPLETE = "incomplete"  # a peer was lost, or the run has not ended yet


class PartRecord(Struct, frozen=True):
    """One finished Parquet file, relative to the recording."""

    path: str
    table: str
    peer: str
    rows: int
    octets: int
    sha256: str


class ConnectionRecord(Struct, frozen=True):
    """One sender or receiver; `id` is the number used in the rows."""

    id: int
    role: str
    peer: str
    group: str
    address: str
    destination: str
    subscription: str = ""


class Clock(Struct, frozen=True):
    """How one host's monotonic clock relates to its wall clock and to the conductor's monotonic clock."""

    host: str
    realtime_offset_ns: int
    offset_ns: int = 0
    drift_ppb: float = 0.0
    bound_ns: int = 0


class Phase(Struct, frozen=True):
    """A phase holds the messages with start_ns <= intended_ns < end_ns, on the conductor's clock."""

    name: str
    start_ns: int
    end_ns: int


class PeerRecord(Struct, frozen=True):
    """One peer process: its role in the run, and how it ended."""

    id: str
    role: str
    host: str
    pid: int
    ended: str  # finished, stopped, failed or lost
    reason: str = ""
    statistics: PeerStatistics = PeerStatistics()


class ExceededLimit(Struct, frozen=True):
    """A limit that stopped the run, and the peer that measured it."""

    metric: str
    value_ns: int
    limit_ns: int
    peer: str


class Manifest(Struct, frozen=True):
    """The metadata of a recording."""

    run: str
    tag: int
    experiment: dict[str, Any]
    command: list[str]
    started_ns: int
    format: int = FORMAT
    state: State = State.INCOMPLETE
    reason: str = ""
    exceeded: ExceededLimit | None = None
    versions: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    system: dict[str, Any] = field(default_factory=dict)
    clocks: list[Clock] = field(default_factory=list)
    peers: list[PeerRecord] = field(default_factory=list)
    connections: list[ConnectionRecord] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    files: list[PartRecord] = field(default_factory=list)


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    write_document(run_dir / MANIFEST, manifest)


def read_manifest(run_dir: Path) -> Manifest:
    return read_document(
        run_dir / MANIFEST,
        Manifest,
        noun="a manifest",
        missing=f"{run_dir}: not a recording, because it has no {MANIFEST}",
        version_field="format",
        version=FORMAT,
        supported=f"format {FORMAT}",
    )


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
