"""Which files does an import read, are they of the format, and where can Spark read them?

Directories are searched; a file named by the user must be of the format, other files in a directory are skipped. Each
file is hashed and staged: linked under a plain name, or decompressed there within limits, so that Spark can split it
and a damaged archive still yields its intact part. Recognises files by their first bytes only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crescendo.importers.decompression import DamagedFile, is_compressed, pieces_of
from crescendo.importers.format import EMPTY, Format, SourceFile, UnpackLimits
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import sha256_of

HEAD_BYTES = 64 * 1024
MAX_FILES = 100_000
LEAST_ROW_BYTES = 20
"""Hardly any format has shorter rows: a number and a time have more digits."""


class ExcessiveFile(Exception):
    """A compressed file expands beyond the limits."""


@dataclass(frozen=True)
class FoundFile:
    """A file of the format."""

    path: Path
    kind: str
    head: bytes


def find_files(paths: Iterable[Path], source_format: Format) -> tuple[list[FoundFile], list[Path]]:
    """The files of the format, each once, and the other files of the directories."""
    found: dict[Path, FoundFile] = {}
    skipped: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = sorted(item for item in path.rglob("*") if item.is_file() and not item.name.startswith("."))
            recognised = [(item, _recognised(item, source_format)) for item in files]
            for item, entry in recognised:
                if entry is not None:
                    found.setdefault(item.resolve(), entry)
                else:
                    skipped.append(item)
            if not any(entry for _, entry in recognised):
                raise ConfigError(
                    f"{path}: none of the {len(files)} files in it is in the format {source_format.name}; "
                    f"expected {source_format.expected}"
                )
        elif path.is_file():
            entry = _recognised(path, source_format)
            if entry is None:
                raise ConfigError(
                    f"{path}: is not in the format {source_format.name}; expected {source_format.expected}"
                )
            found.setdefault(path.resolve(), entry)
        else:
            raise ConfigError(f"{path}: no such file or directory")
    if len(found) > MAX_FILES:
        raise ConfigError(
            f"{len(found):,} files are too many for one recording; import at most {MAX_FILES:,} at a time"
        )
    return list(found.values()), skipped


def stage_files(found: list[FoundFile], folder: Path, limits: UnpackLimits) -> list[SourceFile]:
    """Hash every file and link or decompress it under a plain name, within the limits. Keeps the order of the list."""
    folder.mkdir(parents=True)
    paths = [item.path.resolve() for item in found]
    labels = _unique_suffixes(paths)
    folders = _unique_suffixes([path.parent for path in paths])
    sources = []
    unpacked_bytes = 0
    for number, item in enumerate(found):
        staged = folder / f"{number:06d}.txt"
        fault, refused = "", False
        try:
            octets, sha256 = item.path.stat().st_size, sha256_of(item.path)
            if not is_compressed(item.path):
                staged.symlink_to(paths[number])
            else:
                fault = _decompress(item.path, staged, limits, unpacked_bytes)
                unpacked_bytes += staged.stat().st_size
        except ExcessiveFile as err:
            fault, refused = str(err), True
        except OSError as err:
            raise ConfigError(f"{item.path}: cannot be read: {err.strerror or err}") from err
        sources.append(
            SourceFile(
                number=number,
                path=item.path,
                label=labels[paths[number]],
                folder=folders[paths[number].parent],
                kind=item.kind,
                head=item.head,
                octets=octets,
                sha256=sha256,
                staged=staged,
                fault=fault,
                refused=refused,
            )
        )
    return sources


def most_rows(sources: Iterable[SourceFile]) -> int:
    """About how many rows the staged files have at most."""
    return sum(source.staged.stat().st_size for source in sources if not source.refused) // LEAST_ROW_BYTES


def _recognised(path: Path, source_format: Format) -> FoundFile | None:
    try:
        head = _head(path)
    except PermissionError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err
    except OSError:
        return None
    kind = source_format.kind_of(path.name, head) if head else EMPTY
    return None if kind is None else FoundFile(path, kind, head)


def _head(path: Path) -> bytes:
    head = b""
    try:
        for piece in pieces_of(path):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    except DamagedFile:
        pass  # reported when the file is staged
    return head[:HEAD_BYTES]


def _decompress(path: Path, staged: Path, limits: UnpackLimits, already_bytes: int) -> str:
    """Decompress the intact part; returns what is wrong with the rest. Raises ExcessiveFile and leaves nothing then."""
    packed_bytes, unpacked_bytes = path.stat().st_size, 0
    with staged.open("wb") as plain:
        try:
            for piece in pieces_of(path):
                unpacked_bytes += len(piece)
                if excess := limits.excess(packed_bytes, unpacked_bytes, already_bytes):
                    staged.unlink()
                    raise ExcessiveFile(excess)
                plain.write(piece)
        except DamagedFile as err:
            return str(err)
    return ""


def _unique_suffixes(paths: list[Path]) -> dict[Path, str]:
    """The shortest end of each path, with the same number of names for all, that distinguishes them."""
    distinct = list(dict.fromkeys(paths))
    longest = max((len(path.parts) for path in distinct), default=1)
    for names in range(1, longest + 1):
        suffixes = {path: "/".join(path.parts[-names:]) for path in distinct}
        if len(set(suffixes.values())) == len(distinct):
            return suffixes
    return {path: str(path) for path in distinct}
