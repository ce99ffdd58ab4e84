"""What does this recording contain, which peers wrote it, and is it complete?

The manifest is one JSON file, written when the run begins (state `incomplete`) and again when it ends. A crash in
between leaves a correct manifest: an incomplete recording whose finished parts are listed in its journals.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

from crescendo.model.peer_statistics import PeerStatistics
from crescendo.record.documents import read_document, write_document
from crescendo.record.durable import sync
from crescendo.record.manifest_checks import MAX_MANIFEST_BYTES, check_fields, check_manifest

FORMAT = 1
MANIFEST = "manifest.json"
JOURNAL = "journal"
MAX_PEERS = 100_000


Name = Annotated[str, Meta(max_length=10_000)]
"""Peers of imports are named after files, so a name may look like a path; it is never used as one."""

AddressText = Annotated[str, Meta(max_length=10_000, pattern=r"\A[^\n]*\Z")]
"""One line: the pipeline lists one address per line."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
TimeNs = Annotated[int, Meta(gt=-(2**62), lt=2**62)]
ConnectionRole = Literal["sender", "receiver"]


class PeerRole(StrEnum):
    """What a peer does in a run."""

    SENDER = "sender"
    RECEIVER = "receiver"
    INSPECTOR = "inspector"
    CLIENT = "client"
    AGENT = "agent"


class State(StrEnum):
    """How the recording ended."""

    SEALED = "sealed"  # every peer finished and reported it
    INTERRUPTED = "interrupted"  # the user stopped the run
    INCOMPLETE = "incomplete"  # a peer was lost, or the run has not ended yet


class PartRecord(Struct, frozen=True):
    """One finished Parquet file, relative to the recording."""

    path: Name
    table: Name
    peer: Name
    rows: Count
    octets: Count
    sha256: Name


class InputRecord(Struct, frozen=True):
    """One file that the experiment read, and what was taken from it. A large one is not kept."""

    path: Name  # as the experiment names it
    octets: Count
    sha256: Name
    kept: Name = ""  # the copy, relative to the recording
    derived: dict[Name, Count] = field(default_factory=dict)


class ConnectionRecord(Struct, frozen=True):
    """One sender or receiver; `id` is the number used in the rows, where it has 16 bits with a sign."""

    id: Annotated[int, Meta(ge=0, lt=2**15)]
    role: ConnectionRole
    peer: Name
    group: Name
    address: AddressText
    destination: AddressText
    subscription: AddressText = ""


class Clock(Struct, frozen=True):
    """How one host's monotonic clock relates to its wall clock and to the conductor's monotonic clock.

    Ours = host's time + offset_ns + drift_ppb / 10^9 · (host's time - reference_ns), at most bound_ns wrong.
    """

    host: Name
    realtime_offset_ns: TimeNs
    offset_ns: TimeNs = 0
    drift_ppb: float = 0.0
    bound_ns: TimeNs = 0
    reference_ns: TimeNs = 0


class Phase(Struct, frozen=True):
    """A phase holds the messages with start_ns <= intended_ns < end_ns, on the conductor's clock."""

    name: Name
    start_ns: TimeNs
    end_ns: TimeNs


class PeerRecord(Struct, frozen=True):
    """One peer process: its role in the run, and how it ended."""

    id: Name
    role: PeerRole
    host: Name
    pid: int
    ended: Name  # finished, stopped, failed or lost
    reason: str = ""
    statistics: PeerStatistics = PeerStatistics()


class ExceededLimit(Struct, frozen=True):
    """A limit that stopped the run, and the peer that measured it."""

    metric: Name
    value_ns: TimeNs
    limit_ns: TimeNs
    peer: Name


class Manifest(Struct, frozen=True):
    """The metadata of a recording."""

    run: Name
    tag: int
    experiment: dict[str, Any]
    command: Annotated[list[str], Meta(max_length=200_000)]
    started_ns: TimeNs
    format: int = FORMAT
    state: State = State.INCOMPLETE
    reason: str = ""
    exceeded: ExceededLimit | None = None
    offered_per_s: Annotated[float, Meta(ge=0)] | None = None  # 0 when unbounded; None in older recordings
    inputs: Annotated[list[InputRecord], Meta(max_length=2**15)] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    system: dict[str, Any] = field(default_factory=dict)
    lab: dict[str, Any] = field(default_factory=dict)  # hosts and links, if the run had its own
    clocks: Annotated[list[Clock], Meta(max_length=MAX_PEERS)] = field(default_factory=list)
    peers: Annotated[list[PeerRecord], Meta(max_length=MAX_PEERS)] = field(default_factory=list)
    connections: Annotated[list[ConnectionRecord], Meta(max_length=2**16)] = field(default_factory=list)
    phases: Annotated[list[Phase], Meta(max_length=100)] = field(default_factory=list)
    files: list[PartRecord] = field(default_factory=list)


def write_manifest(run_dir: Path, manifest: Manifest, *, durable: bool = True) -> None:
    """Write the manifest atomically. If it is durable, so is the name of the recording."""
    write_document(run_dir / MANIFEST, manifest, durable=durable)
    if durable:
        sync(run_dir.parent)


def read_manifest(run_dir: Path) -> Manifest:
    return read_document(
        run_dir / MANIFEST,
        Manifest,
        noun="a manifest",
        missing=f"{run_dir}: not a recording, because it has no {MANIFEST}",
        version_field="format",
        version=FORMAT,
        supported=f"format {FORMAT}",
        max_bytes=MAX_MANIFEST_BYTES,
        check_fields=check_fields,
        check=check_manifest,
    )


def parse_manifest(content: bytes | str) -> Manifest:
    """The manifest with this content, checked as if it were read from a recording. Raises ValueError."""
    try:
        check_fields(msgspec.json.decode(content, type=dict[str, Raw]))
        manifest = msgspec.json.decode(content, type=Manifest)
    except RecursionError as err:
        raise ValueError("it is nested too deeply") from err
    check_manifest(manifest)
    return manifest


def clock_bound_ns(clocks: Sequence[Clock]) -> int:
    """How wrong a time between two hosts may be: each is compared with the conductor, so two bounds add up."""
    return sum(sorted(clock.bound_ns for clock in clocks)[-2:])


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
