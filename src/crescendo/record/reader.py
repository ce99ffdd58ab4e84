"""Which parts of a recording are present and intact?

A sealed recording lists its parts in the manifest; one that was cut off lists them in its journals. Either way every
part is checked against its size and hash before it is used, and only regular files inside the recording are opened.
Reads; never repairs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crescendo.model.regular_file import read_regular
from crescendo.record.contained_files import contained_files, file_fault
from crescendo.record.manifest import JOURNAL, Manifest, PartRecord, State, read_manifest, sha256_of
from crescendo.record.manifest_checks import MAX_MANIFEST_BYTES
from crescendo.record.schema import RECEIVED, SENT


@dataclass(frozen=True)
class Recording:
    """An opened recording."""

    path: Path
    manifest: Manifest
    parts: list[PartRecord]
    damaged: dict[str, str]  # path of a part -> what is wrong with it

    def files(self, table: str) -> list[str]:
        """The intact parts of one table."""
        return [str(self.path / part.path) for part in self.parts if part.table == table]

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.parts if part.table == table)


def open_recording(path: Path) -> Recording:
    """Open a recording, whatever state its run left it in."""
    manifest = read_manifest(path)
    listed = manifest.files if manifest.state is State.SEALED else list(journalled_parts(path))
    parts: list[PartRecord] = []
    damaged: dict[str, str] = {}
    for part in listed:
        fault = _fault(path, part)
        if fault:
            damaged[part.path] = fault
        else:
            parts.append(part)
    return Recording(path, manifest, parts, damaged)


def recorded_messages(manifests: Iterable[Manifest]) -> int | None:
    """How many messages these recordings have, as far as their manifests say; None if one does not list its parts."""
    total = 0
    for manifest in manifests:
        if not manifest.files:
            return None
        total += max(sum(part.rows for part in manifest.files if part.table == table) for table in (SENT, RECEIVED))
    return total


def journalled_parts(path: Path) -> Iterator[PartRecord]:
    """The parts that peers finished, from their journals. A truncated last line is a part that was never finished."""
    decoder = msgspec.json.Decoder(PartRecord)
    for journal in contained_files(path / JOURNAL, "*.jsonl", path):
        for line in read_regular(journal, MAX_MANIFEST_BYTES).splitlines():
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError):
                continue


def _fault(path: Path, part: PartRecord) -> str:
    if fault := file_fault(path, part.path):
        return fault
    file = path / part.path
    try:
        if file.stat().st_size != part.octets:
            return f"has {file.stat().st_size} bytes, not {part.octets}"
        return "" if sha256_of(file) == part.sha256 else "does not match its hash"
    except OSError as err:
        return f"cannot be read: {err.strerror}"
