"""Where does the web server keep its files, and which names may a request use?

Recordings lie in the directory of runs, as always; everything else in `.web` inside it. A name from a request is
accepted only if it matches a pattern, and the path that it leads to only if it is a direct child without a symbolic
link. No other module builds a path from a request.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.record.campaign_journal import CAMPAIGN_FILE
from crescendo.record.manifest import MANIFEST

WEB = ".web"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")
_PRIVATE = 0o700


class NotFoundError(ConfigError):
    """A request names something that does not exist, or whose name is not one."""


class WebDirectory:
    """The directory of runs, and what the server adds to it."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs.resolve()
        self.own = self.runs / WEB
        try:
            for folder in ("", "experiments", "archive", "jobs", "notes", "analyses"):
                (self.own / folder).mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        except OSError as err:
            raise ConfigError(f"--out {runs}: cannot create {self.own}: {err.strerror}") from err
        self._lock: int | None = None

    @property
    def experiments(self) -> Path:
        return self.own / "experiments"

    @property
    def archive(self) -> Path:
        return self.own / "archive"

    @property
    def jobs(self) -> Path:
        return self.own / "jobs"

    @property
    def notes(self) -> Path:
        return self.own / "notes"

    @property
    def analyses(self) -> Path:
        return self.own / "analyses"

    def run(self, name: str) -> Path:
        """The recording of this name, here or in a campaign: names have the time of the run, so they are unique."""
        for parent in (self.runs, *self._campaigns(name)):
            directory = child_of(parent, name, "run")
            if (directory / MANIFEST).is_file():
                return directory
        raise NotFoundError(f"no run is called {name!r}; /runs lists them, and /campaigns those of campaigns")

    def _campaigns(self, run: str) -> Iterator[Path]:
        """The campaigns in which there may be a run of this name."""
        for journal in self.runs.glob(f"*/{CAMPAIGN_FILE}"):
            if not journal.parent.is_symlink() and (journal.parent / run).is_dir():
                yield journal.parent

    def campaign(self, name: str) -> Path:
        """The campaign of this name."""
        directory = child_of(self.runs, name, "campaign")
        if not (directory / CAMPAIGN_FILE).is_file():
            raise NotFoundError(f"no campaign is called {name!r}; /campaigns lists them")
        return directory

    def lock(self) -> None:
        """Be the only server of this directory until the process ends."""
        descriptor = os.open(self.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.read(descriptor, 100).decode(errors="replace").strip()
            os.close(descriptor)
            raise ConfigError(
                f"{self.runs}: another crescendo web serves it already ({other}); use that one, stop it, or give "
                "another directory with --out"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def child_of(parent: Path, name: str, noun: str, suffix: str = "") -> Path:
    """The path of something in this directory. NotFoundError if the name could lead elsewhere."""
    path = parent / f"{name}{suffix}"
    if NAME.fullmatch(name) is None or path.is_symlink():
        raise NotFoundError(f"{name[:80]!r} cannot be the name of a {noun}: letters, digits, '.', '_' and '-' only")
    return path
