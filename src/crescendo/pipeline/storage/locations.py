"""Where are a run and its tables, and how does the driver access them?

In a directory on this machine, or at a URL of a Hadoop file system (see `hadoop`). Messages never pass through here:
Spark reads and writes them where they are. Only small files do: manifests, summaries, and tables of counts. Knows
nothing of what is in the files.
"""

import re
import shutil
from pathlib import Path
from typing import Protocol

from crescendo.record.contained_files import contained_files, read_contained
from crescendo.record.documents import MAX_DOCUMENT_BYTES, write_atomically

LAKE_MARKER = "lake.json"
"""The file that marks a directory as a lake."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Location(Protocol):
    """A directory somewhere. Paths are relative to it, with slashes."""

    def spark_path(self, path: str) -> str:
        """The path or URL by which Spark finds a file or directory."""

    def local_files(self, path: str) -> list[Path]:
        """The Parquet files of a directory, on this machine: in place, or downloaded."""

    def local_file(self, path: str) -> Path:
        """One file, on this machine: in place, or downloaded."""

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None when it does not exist."""

    def write(self, path: str, content: bytes) -> None:
        """Readers see the old file or the new one, never a part; on an object store, briefly none."""

    def put(self, local: Path, path: str) -> None:
        """Copy one local file to this location."""

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty when it does not exist."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory and its content; a missing one is not an error."""

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""


class Directory:
    """A directory on this machine. Only regular files inside it are read: it may come from anybody."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def spark_path(self, path: str) -> str:
        return str(self.path / path)

    def local_files(self, path: str) -> list[Path]:
        return contained_files(self.path / path, "*.parquet", self.path)

    def local_file(self, path: str) -> Path:
        return self.path / path

    def read(self, path: str) -> bytes | None:
        try:
            return read_contained(self.path, path, MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        write_atomically(self.path / path, content)

    def put(self, local: Path, path: str) -> None:
        shutil.copyfile(local, self.path / path)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.path / path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def rename(self, source: str, target: str) -> None:
        # Spark leaves a checksum file next to each file it writes here; no reader uses them.
        for checksum in (self.path / source).glob(".*.crc"):
            checksum.unlink()
        (self.path / source).rename(self.path / target)

    def remove(self, path: str) -> None:
        target = self.path / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def make_dir(self, path: str) -> None:
        (self.path / path).mkdir(parents=True, exist_ok=True)


def is_url(text: str) -> bool:
    """Whether this is a URL, as in hdfs://host/runs or file:/runs, and not a path."""
    return _URL.match(text) is not None
