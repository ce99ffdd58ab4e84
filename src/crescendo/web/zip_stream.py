"""How are many files sent as one zip without a copy on disk or in memory?

Pieces of the archive as they come into being. Only regular files inside the recording are put in: what leads out of it
is left out and named in the archive.
"""

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from crescendo.model.regular_file import open_regular
from crescendo.record.contained_files import file_fault

_PIECE_BYTES = 256 * 1024
_PACKED = (".parquet", ".gz", ".zip", ".png")
_LEFT_OUT = "left-out.txt"


class _Pieces:
    """A file that cannot seek, and keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def write(self, data: bytes, /) -> int:
        self._pieces.append(bytes(data))
        self._length += len(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def tell(self) -> int:
        return self._length

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def zip_stream(run_dir: Path, paths: Iterable[Path]) -> Iterator[bytes]:
    """The archive of these files of a recording, below a folder of its name."""
    pieces = _Pieces()
    left_out = []
    with zipfile.ZipFile(pieces, "w", allowZip64=True) as archive:
        for path in paths:
            name = path.relative_to(run_dir).as_posix()
            if fault := file_fault(run_dir, name):
                left_out.append(f"{name}: {fault}\n")
                continue
            method = zipfile.ZIP_STORED if path.suffix in _PACKED else zipfile.ZIP_DEFLATED
            info = zipfile.ZipInfo.from_file(path, f"{run_dir.name}/{name}", strict_timestamps=False)
            info.compress_type = method
            with open_regular(path) as source, archive.open(info, "w", force_zip64=True) as target:
                while piece := source.read(_PIECE_BYTES):
                    target.write(piece)
                    if taken := pieces.take():
                        yield taken
        if left_out:
            archive.writestr(f"{run_dir.name}/{_LEFT_OUT}", "".join(left_out))
    yield pieces.take()


def files_below(run_dir: Path, folder: str) -> list[Path]:
    """The files of a folder of a recording, or of all of it."""
    top = run_dir / folder
    return sorted(path for path in top.rglob("*") if path.is_symlink() or not path.is_dir())
