"""Which files does an import read, are they of the format, and where can Spark read them?

Directories are searched; a file named by the user must be of the format, other files in a directory are skipped. Each
file is hashed and staged: linked under a plain name, or decompressed there, so that Spark can split it and a damaged
archive still yields its intact part. Recognises files by their first bytes only.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from crescendo.importers.format import EMPTY, Format, SourceFile
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import sha256_of

HEAD_BYTES = 64 * 1024
MAX_FILES = 100_000
_CHUNK_BYTES = 64 * 1024
_DECOMPRESSORS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
    b"BZh": bz2.BZ2Decompressor,
}
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_READ_BYTES = 4 * 1024  # a damaged file loses its last read


class DamagedFile(Exception):
    """A compressed file is truncated or damaged; what came before is intact."""


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
                    f"{path}: none of the {len(files)} files in it is of the format {source_format.name}; "
                    f"expected {source_format.expected}"
                )
        elif path.is_file():
            entry = _recognised(path, source_format)
            if entry is None:
                raise ConfigError(
                    f"{path}: is not of the format {source_format.name}; expected {source_format.expected}"
                )
            found.setdefault(path.resolve(), entry)
        else:
            raise ConfigError(f"{path}: no such file or directory")
    if len(found) > MAX_FILES:
        raise ConfigError(
            f"{len(found):,} files are too many for one recording; import at most {MAX_FILES:,} at a time"
        )
    return list(found.values()), skipped


def stage_files(found: list[FoundFile], folder: Path) -> list[SourceFile]:
    """Hash every file and link or decompress it under a plain name. Keeps the order of the list."""
    folder.mkdir(parents=True)
    paths = [item.path.resolve() for item in found]
    labels = _unique_suffixes(paths)
    folders = _unique_suffixes([path.parent for path in paths])
    sources = []
    for number, item in enumerate(found):
        staged = folder / f"{number:06d}.txt"
        try:
            octets, sha256 = item.path.stat().st_size, sha256_of(item.path)
            fault = ""
            if not _is_compressed(item.path):
                staged.symlink_to(paths[number])
            else:
                fault = _decompress(item.path, staged)
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
            )
        )
    return sources


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
        for chunk in _chunks(path):
            head += chunk
            if len(head) >= HEAD_BYTES:
                break
    except DamagedFile:
        pass  # reported when the file is staged
    return head[:HEAD_BYTES]


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)


def _is_compressed(path: Path) -> bool:
    return _magic(path).startswith((_ZSTD, *_DECOMPRESSORS))


def _chunks(path: Path) -> Iterator[bytes]:
    """The content, decompressed if necessary. A file may hold several compressed streams in sequence."""
    magic = _magic(path)
    decompressor = next(
        (decompressor for prefix, decompressor in _DECOMPRESSORS.items() if magic.startswith(prefix)), None
    )
    with path.open("rb") as file:
        if magic.startswith(_ZSTD):
            yield from _zstd_chunks(file)
            return
        stream = decompressor() if decompressor else None
        while chunk := file.read(_CHUNK_BYTES):
            if stream is None:
                yield chunk
                continue
            while chunk and decompressor is not None:
                stream = decompressor() if stream.eof else stream
                try:
                    yield stream.decompress(chunk)
                except (zlib.error, lzma.LZMAError, OSError, EOFError) as err:
                    raise DamagedFile(f"the compressed file is damaged: {err}") from err
                chunk = stream.unused_data if stream.eof else b""
        if stream is not None and not stream.eof:
            raise DamagedFile("the compressed file is truncated")


def _zstd_chunks(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(file, "zstd") as stream:
            while chunk := stream.read(_ZSTD_READ_BYTES):
                yield chunk
    except OSError as err:
        raise DamagedFile(f"the compressed file is damaged or truncated: {err}") from err


def _decompress(path: Path, staged: Path) -> str:
    """Decompress the intact part; returns what is wrong with the rest."""
    with staged.open("wb") as plain:
        try:
            for chunk in _chunks(path):
                plain.write(chunk)
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
