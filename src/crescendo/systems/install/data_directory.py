"""Where is what Crescendo installs, and how does it get there whole or not at all?

A directory is made next to its final place and renamed when it is complete. One process at a time installs a kind, and
removes what a killed one left.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from crescendo.model.errors import ConfigError

_PARTIAL = ".partial-"

Make = Callable[[Path], Path]
"""Makes something in a scratch directory, and returns the directory in it that is wanted."""


def data_directory() -> Path:
    """Where installed releases are kept."""
    if own := os.environ.get("CRESCENDO_DATA"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "crescendo"


def install_once(name: str, directory: Path, make: Make, *, proof: str = "") -> None:
    """Make this directory, unless it is there, with the file `proof` in it. `name` is what a message calls it."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(directory.parent):
            if not (directory / proof).exists():
                make_whole(directory, make)
    except OSError as err:
        raise ConfigError(
            f"{name} cannot be installed under {directory.parent}: {err.strerror or err}; "
            "free some space or set CRESCENDO_DATA to another directory"
        ) from err


def make_whole(directory: Path, make: Make) -> None:
    """Make a directory that does not exist yet."""
    scratch = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=directory.parent))
    try:
        make(scratch).rename(directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One installation of a kind at a time; the holder of the lock removes what a killed installation left."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for partial in directory.glob(f"{_PARTIAL}*"):
            shutil.rmtree(partial, ignore_errors=True)
        yield
