"""What does a foreign format declare about its files, and what is the result of reading them?

The values that pass between the job and the formats. A format recognises its files by their first bytes and turns them
into frames with the columns of the recording's tables; lines that it cannot read become rejects. Reads nothing itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from crescendo.model.errors import ConfigError
from crescendo.model.units import Size
from crescendo.record.manifest import ConnectionRecord, ConnectionRole, PeerRecord, PeerRole

HOST = "imported"
"""The host of every imported row: the files do not say more."""

GROUP = "imported"
EMPTY = "empty"
"""The kind of an empty file: it is valid in every format and has no rows."""

MAX_RATIO = 1e9
ALWAYS_ALLOWED_BYTES = 16 * 2**20
"""A file may expand to this, whatever its size: nobody is harmed, and an empty log compresses very well."""

SOURCE, LINE, REASON, TEXT = "source", "line", "reason", "text"
REJECT_DDL = f"{SOURCE} INT, {LINE} BIGINT, {REASON} STRING, {TEXT} STRING"

Event = tuple[str, str, str]
"""Source, kind and detail (JSON) of something that holds for the whole run."""


@dataclass(frozen=True)
class SourceFile:
    """One file as it was found, and its uncompressed copy or link under a plain name."""

    number: int
    path: Path
    label: str  # the shortest end of its path that distinguishes it from the other files
    folder: str  # the same for its directory
    kind: str
    head: bytes
    octets: int
    sha256: str
    staged: Path
    fault: str = ""  # why its end is missing, when a compressed file is damaged
    refused: bool = False  # it expands beyond the limits: there is no copy, and nothing is read


@dataclass(frozen=True)
class UnpackLimits:
    """How far compressed files may expand: a small file could fill a disk."""

    total_bytes: int = 20 * 2**30  # all files of an import together
    ratio: float = 250.0  # of a file's size; logs of these tools are compressed 5 to 100 times

    def excess(self, packed_bytes: int, unpacked_bytes: int, already_bytes: int) -> str:
        """Which limit is exceeded by a file that has been expanded so far; empty if none is."""
        if unpacked_bytes > max(self.ratio * packed_bytes, ALWAYS_ALLOWED_BYTES):
            return (
                f"it unpacks to more than {self.ratio:g} times its {packed_bytes:,} bytes; "
                f"if it is genuine, allow more with --limit {self.ratio * 10:g}:1"
            )
        if already_bytes + unpacked_bytes > self.total_bytes:
            return (
                f"the files unpack to more than {self.total_bytes:,} bytes; "
                f"import fewer at a time, or allow more with --limit {-(-self.total_bytes * 2 // 2**30)}GiB"
            )
        return ""


def unpack_limits(texts: Sequence[str]) -> UnpackLimits:
    """The limits that a user wrote: a size such as 20GiB, a ratio such as 250:1, or both."""
    limits = UnpackLimits()
    for text in texts:
        try:
            if text.endswith(":1"):
                ratio = float(text.removesuffix(":1"))
                if not 1 <= ratio <= MAX_RATIO:
                    raise ValueError("it is out of range")
                limits = replace(limits, ratio=ratio)
            else:
                limits = replace(limits, total_bytes=int(Size.parse(text)))
        except ValueError as err:
            raise ConfigError(f"--limit {text}: {err}; write a size such as 20GiB, or a ratio such as 250:1") from err
    return limits


@dataclass(frozen=True)
class ImportOptions:
    """What only the user can know."""

    period_ns: int = 60 * 10**9  # length of the periods of sums over time, where a format has them
    clock_bound_ns: int | None = None  # how far apart the clocks were; None: the resolution of the stamps
    limits: UnpackLimits = UnpackLimits()


@dataclass(frozen=True)
class Workspace:
    """What an import works with: a Spark session, a temporary directory, and a callback for progress."""

    spark: SparkSession
    folder: Path
    progress: Callable[[str], None]


@dataclass
class ImportResult:
    """Rows for the tables and rejected lines, as frames that are not computed yet."""

    resolution_ns: int  # of the times in these files
    frames: list[tuple[str, DataFrame]] = field(default_factory=list)
    rejects: list[DataFrame] = field(default_factory=list)
    records: dict[int, int] = field(default_factory=dict)  # source number -> its lines or binary records
    connections: list[ConnectionRecord] = field(default_factory=list)
    peers: list[PeerRecord] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)  # what these files do not contain

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
    kind_of: Callable[
        [str, bytes], str | None
    ]  # file name and first bytes -> kind; None when the file is not of this format
    read_sources: Callable[[Workspace, list[SourceFile], ImportOptions], ImportResult]


def first_line(head: bytes) -> str:
    """The first line that is not blank."""
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    return next((line for line in lines if line), "")


def peer_record(name: str, role: str) -> PeerRecord:
    """The record of a peer that is known only by its file."""
    return PeerRecord(id=name, role=PeerRole(role), host=HOST, pid=0, ended="finished")


def connection_record(number: int, role: ConnectionRole, name: str, destination: str) -> ConnectionRecord:
    # An address must not contain white space: the pipeline lists one address per line.
    destination = "".join("_" if character.isspace() else character for character in destination)
    address = f"queue://{destination}"
    return ConnectionRecord(number, role, name, GROUP, address, destination, address if role == "receiver" else "")
