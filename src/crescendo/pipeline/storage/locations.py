"""Where do a run and its tables lie, and how does the driver reach them?

In a directory of this machine, or at a URL of a Hadoop file system (see `hadoop`). Messages never pass through here:
Spark reads and writes those where they are. What does pass is small: manifests, summaries, and the tables that are
counts. Knows nothing of what is in the files.
"""

import re
import shutil
from pathlib import Path
from typing import Protocol

from crescendo.record.manifest import write_atomically

LAKE_MARKER = "lake.json"
"""The file by which a lake is known."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Location(Protocol):
    """A directory somewhere. Paths are relative to it, with slashes."""

    def at(self, path: str) -> str:
        """What Spark calls a file or directory of this place."""

    def local_files(self, path: str) -> list[Path]:
        """The Parquet files of a directory, on this machine: as they are, or fetched."""

    def fetched(self, path: str) -> Path:
        """One file on this machine."""

    def read(self, path: str) -> bytes | None:
        """The whole of a small file; None when it is not there."""

    def write(self, path: str, content: bytes) -> None:
        """Readers see the old file or the new one, or on an object store none for a moment, never a piece."""

    def put(self, local: Path, path: str) -> None:
        """Copy one file into this place."""

    def names(self, path: str) -> list[str]:
        """What is in a directory, in order; nothing when it is not there."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Take away a file or a directory with all that is in it; one that is not there is no error."""

    def make(self, path: str) -> None:
        """Make a directory and those above it, unless it is there."""


class Directory:
    """A place on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def at(self, path: str) -> str:
        return str(self.path / path)

    def local_files(self, path: str) -> list[Path]:
        return sorted((self.path / path).glob("*.parquet"))

    def fetched(self, path: str) -> Path:
        return self.path / path

    def read(self, path: str) -> bytes | None:
        try:
            return (self.path / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
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
        # Spark leaves a checksum beside each file it writes here; nobody reads those.
        for checksum in (self.path / source).glob(".*.crc"):
            checksum.unlink()
        (self.path / source).rename(self.path / target)

    def remove(self, path: str) -> None:
        gone = self.path / path
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink(missing_ok=True)

    def make(self, path: str) -> None:
        (self.path / path).mkdir(parents=True, exist_ok=True)


def is_url(text: str) -> bool:
    """Whether this names a place by a URL, as in hdfs://host/runs or file:/runs, and not by a path."""
    return _URL.match(text) is not None
