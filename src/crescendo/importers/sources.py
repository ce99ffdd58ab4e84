"""Which files are to be read, are they what they are said to be, and where can Spark read them?

Directories are searched; files named one by one must be of the format, those found in a directory may be anything and
are skipped when they are not. Each is hashed and staged: linked under a plain name, or unpacked there when it is
compressed, so that Spark can split it and a torn archive still gives what is left of it. Looks at first bytes only.
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
_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
    b"BZh": bz2.BZ2Decompressor,
}
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_READ_BYTES = 4 * 1024  # of a torn file the last read is lost


class Torn(Exception):
    """A compressed file breaks off or is damaged; what came before it is sound."""


@dataclass(frozen=True)
class Found:
    """A file that was recognised."""

    path: Path
    kind: str
    head: bytes


def find(paths: Iterable[Path], form: Format) -> tuple[list[Found], list[Path]]:
    """The files of the format, each once, and those of a directory that are something else."""
    found: dict[Path, Found] = {}
    skipped: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(item for item in path.rglob("*") if item.is_file() and not item.name.startswith("."))
            recognised = [(item, _recognised(item, form)) for item in inside]
            for item, entry in recognised:
                if entry is not None:
                    found.setdefault(item.resolve(), entry)
                else:
                    skipped.append(item)
            if not any(entry for _, entry in recognised):
                raise ConfigError(f"{path}: none of the {len(inside)} files in it is of the format {form.name}; "
                                  f"expected {form.expected}")  # fmt: skip
        elif path.is_file():
            entry = _recognised(path, form)
            if entry is None:
                raise ConfigError(f"{path}: is not of the format {form.name}; expected {form.expected}")
            found.setdefault(path.resolve(), entry)
        else:
            raise ConfigError(f"{path}: no such file or directory")
    if len(found) > MAX_FILES:
        raise ConfigError(
            f"{len(found):,} files are too many for one recording; import at most {MAX_FILES:,} at a time"
        )
    return list(found.values()), skipped


def stage(found: list[Found], folder: Path) -> list[SourceFile]:
    """Hash every file and make it readable under a plain name. The order is that of the list."""
    folder.mkdir(parents=True)
    paths = [item.path.resolve() for item in found]
    labels = _tails(paths)
    folders = _tails([path.parent for path in paths])
    sources = []
    for number, item in enumerate(found):
        staged = folder / f"{number:06d}.txt"
        try:
            octets, sha256 = item.path.stat().st_size, sha256_of(item.path)
            fault = ""
            if not _is_packed(item.path):
                staged.symlink_to(paths[number])
            else:
                fault = _unpack(item.path, staged)
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


def _recognised(path: Path, form: Format) -> Found | None:
    try:
        head = _head(path)
    except PermissionError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror}") from err
    except OSError:
        return None
    kind = form.kind_of(path.name, head) if head else EMPTY
    return None if kind is None else Found(path, kind, head)


def _head(path: Path) -> bytes:
    head = b""
    try:
        for piece in _pieces(path):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    except Torn:
        pass  # said when the file is read
    return head[:HEAD_BYTES]


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)


def _is_packed(path: Path) -> bool:
    return _magic(path).startswith((_ZSTD, *_PACKED))


def _pieces(path: Path) -> Iterator[bytes]:
    """The content, unpacked when it is packed. An archive may be several, one after the other."""
    magic = _magic(path)
    unpacker = next((unpacker for mark, unpacker in _PACKED.items() if magic.startswith(mark)), None)
    with path.open("rb") as file:
        if magic.startswith(_ZSTD):
            yield from _zstd_pieces(file)
            return
        stream = unpacker() if unpacker else None
        while piece := file.read(_CHUNK_BYTES):
            if stream is None:
                yield piece
                continue
            while piece and unpacker is not None:
                stream = unpacker() if stream.eof else stream
                try:
                    yield stream.decompress(piece)
                except (zlib.error, lzma.LZMAError, OSError, EOFError) as err:
                    raise Torn(f"the compressed file is damaged: {err}") from err
                piece = stream.unused_data if stream.eof else b""
        if stream is not None and not stream.eof:
            raise Torn("the compressed file breaks off")


def _zstd_pieces(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(file, "zstd") as stream:
            while piece := stream.read(_ZSTD_READ_BYTES):
                yield piece
    except OSError as err:
        raise Torn(f"the compressed file is damaged or breaks off: {err}") from err


def _unpack(path: Path, staged: Path) -> str:
    """Unpack what can be unpacked; returns what is wrong with the rest."""
    with staged.open("wb") as plain:
        try:
            for piece in _pieces(path):
                plain.write(piece)
        except Torn as err:
            return str(err)
    return ""


def _tails(paths: list[Path]) -> dict[Path, str]:
    """For every path the shortest end of it, the same number of names for all, that tells them apart."""
    distinct = list(dict.fromkeys(paths))
    longest = max((len(path.parts) for path in distinct), default=1)
    for names in range(1, longest + 1):
        tails = {path: "/".join(path.parts[-names:]) for path in distinct}
        if len(set(tails.values())) == len(distinct):
            return tails
    return {path: str(path) for path in distinct}
