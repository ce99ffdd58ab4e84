"""Which parts of a recording are present and intact?

A sealed recording lists its parts in the manifest; one that was cut off lists them in its journals. Either way every
part is checked against its size and hash before it is used. Reads; never repairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crescendo.record.manifest import JOURNAL, Manifest, PartRecord, State, read_manifest, sha256_of


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


def journalled_parts(path: Path) -> Iterator[PartRecord]:
    """The parts that peers finished, from their journals. A truncated last line is a part that was never finished."""
    decoder = msgspec.json.Decoder(PartRecord)
    for journal in sorted((path / JOURNAL).glob("*.jsonl")):
        for line in journal.read_bytes().splitlines():
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError:
                continue


def _fault(path: Path, part: PartRecord) -> str:
    file = path / part.path
    if not file.resolve().is_relative_to(path.resolve()):
        return "lies outside the recording"
    try:
        if file.stat().st_size != part.octets:
            return f"has {file.stat().st_size} bytes, not {part.octets}"
        return "" if sha256_of(file) == part.sha256 else "does not match its hash"
    except FileNotFoundError:
        return "is missing"
    except OSError as err:
        return f"cannot be read: {err.strerror}"
