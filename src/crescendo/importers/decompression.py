"""How is a compressed file read when its content cannot be trusted?

In small pieces, whatever it expands to: a few bytes of bzip2 can become gigabytes. The caller decides when it has seen
enough. A file may hold several compressed streams in sequence; what comes before damage is intact. Opens no archive
inside an archive.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

PIECE_BYTES = 64 * 1024
MAX_XZ_MEMORY_BYTES = 128 * 2**20
"""Twice what `xz -9` needs. A file may ask for 4 GiB."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_READ_BYTES = 4 * 1024  # a damaged file loses its last read


class DamagedFile(Exception):
    """A compressed file is truncated or damaged; what came before is intact."""


class _Stream(Protocol):
    """One compressed stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What the data expands to, piece by piece."""


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while not self._inner.eof:
            piece = self._inner.decompress(data, PIECE_BYTES)
            yield piece
            data = self._inner.unconsumed_tail
            if not data and len(piece) < PIECE_BYTES:  # otherwise zlib may hold back more
                return


class _Blocks:
    """bzip2 or xz: both keep what they were given until it is read."""

    def __init__(self, inner: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._inner = inner

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield self._inner.decompress(data, PIECE_BYTES)
        while not self._inner.eof and not self._inner.needs_input:
            yield self._inner.decompress(b"", PIECE_BYTES)


_STREAMS: dict[bytes, Callable[[], _Stream]] = {
    b"\x1f\x8b": _Gzip,
    b"\xfd7zXZ\x00": lambda: _Blocks(lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY_BYTES)),
    b"BZh": lambda: _Blocks(bz2.BZ2Decompressor()),
}


def is_compressed(path: Path) -> bool:
    return _magic(path).startswith((_ZSTD, *_STREAMS))


def pieces_of(path: Path) -> Iterator[bytes]:
    """The content, decompressed if necessary, in pieces of at most 64 KiB. Raises DamagedFile at the first damage."""
    magic = _magic(path)
    with path.open("rb") as file:
        if magic.startswith(_ZSTD):
            yield from _zstd_pieces(file)
            return
        for prefix, make in _STREAMS.items():
            if magic.startswith(prefix):
                yield from _stream_pieces(file, make)
                return
        while chunk := file.read(PIECE_BYTES):
            yield chunk


def _stream_pieces(file: IO[bytes], make: Callable[[], _Stream]) -> Iterator[bytes]:
    stream = make()
    while chunk := file.read(PIECE_BYTES):
        while chunk:
            stream = make() if stream.eof else stream
            try:
                yield from stream.pieces(chunk)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as err:
                if "Memory usage limit" in str(err):  # liblzma's words
                    raise DamagedFile(f"it takes more than {MAX_XZ_MEMORY_BYTES:,} bytes of memory to unpack") from err
                raise DamagedFile(f"the compressed file is damaged: {err}") from err
            chunk = stream.unused_data if stream.eof else b""
    if not stream.eof:
        raise DamagedFile("the compressed file is truncated")


def _zstd_pieces(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with pa.CompressedInputStream(file, "zstd") as stream:
            while piece := stream.read(_ZSTD_READ_BYTES):
                yield piece
    except OSError as err:
        raise DamagedFile(f"the compressed file is damaged or truncated: {err}") from err


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)
