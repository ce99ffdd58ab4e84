"""Which files of a commit may be run, and are they still the ones of that commit?

A repository has one directory per extension point; its executable files are the handlers. What the commit itself lists
decides: a path that is not listed, or listed as a link, is refused, so no name leads out of the repository. Before
each start, the content is compared with the hash that the commit has of it. Starts nothing.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from crescendo.model.errors import ConfigError, PeerError

START_AGENT, STOP_AGENT, USER_COMMAND = "start_agent", "stop_agent", "user_command"
EXTENSION_POINTS = (START_AGENT, STOP_AGENT, USER_COMMAND)
"""Directory -> run when the agent starts, when it stops, and by name."""

MAX_HANDLER_BYTES = 16 * 2**20
_EXECUTABLE, _LINK = "100755", "120000"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class CommittedFile:
    """A file as the commit lists it."""

    mode: str
    blob: str


@dataclass(frozen=True)
class Handler:
    """One executable file of an extension point."""

    name: str
    path: Path
    blob: str


@dataclass(frozen=True)
class HandlerSource:
    """The files of one commit, checked out under `directory`."""

    location: str
    commit: str
    directory: Path
    files: dict[str, CommittedFile]  # path in the repository -> file

    def handlers(self, point: str) -> list[Handler]:
        """Every handler of an extension point, by name."""
        names = sorted(path.partition("/")[2] for path in self.files if path.startswith(f"{point}/"))
        return [self._handler(point, name) for name in names if "/" not in name and self._is_executable(point, name)]

    def command(self, name: str) -> Handler:
        """The handler of a command: the file of this name, or the only one with this name before its suffix."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name[:100]!r} is not a command: letters, digits, . _ and - name one; no path does")
        files = sorted(path.partition("/")[2] for path in self.files if path.startswith(f"{USER_COMMAND}/"))
        fitting = [file for file in files if file == name] or [
            file for file in files if file.rpartition(".")[0] == name
        ]
        if len(fitting) != 1:
            known = ", ".join(handler.name for handler in self.handlers(USER_COMMAND)) or "none"
            problem = f"more than one file is called {name!r}" if fitting else f"there is no command {name!r}"
            raise ConfigError(f"{problem}; commands of this source: {known}")
        if self.files[f"{USER_COMMAND}/{fitting[0]}"].mode == _LINK:
            raise ConfigError(f"{USER_COMMAND}/{fitting[0]} is a symbolic link; only files of the repository are run")
        if not self._is_executable(USER_COMMAND, fitting[0]):
            raise ConfigError(f"{USER_COMMAND}/{fitting[0]} is not executable in commit {self.commit[:12]}")
        return self._handler(USER_COMMAND, fitting[0])

    def check(self, handler: Handler) -> None:
        """PeerError unless the file is still as the commit has it."""
        try:
            fd = os.open(handler.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                content = file.read(MAX_HANDLER_BYTES + 1)
        except OSError as err:
            raise PeerError(f"{handler.name}: cannot be read: {err.strerror}") from err
        if len(content) > MAX_HANDLER_BYTES:
            raise ConfigError(f"{handler.name}: a handler has at most {MAX_HANDLER_BYTES} bytes")
        if blob_id(content, len(self.commit)) != handler.blob:
            raise PeerError(f"{handler.name} is not the file of commit {self.commit[:12]} any more")

    def _is_executable(self, point: str, name: str) -> bool:
        return self.files[f"{point}/{name}"].mode == _EXECUTABLE

    def _handler(self, point: str, name: str) -> Handler:
        return Handler(name, self.directory / point / name, self.files[f"{point}/{name}"].blob)


def listed_files(listing: str) -> dict[str, CommittedFile]:
    """Path -> file, of what `git ls-tree -r -z` prints."""
    files = {}
    for entry in listing.split("\0"):
        facts, _, path = entry.partition("\t")
        if path:
            mode, _, blob = facts.split(" ")
            files[path] = CommittedFile(mode, blob)
    return files


def blob_id(content: bytes, digits: int) -> str:
    """The name that git gives to this content, in repositories with names of this length."""
    named = b"blob %d\0" % len(content) + content
    return hashlib.sha256(named).hexdigest() if digits == 64 else hashlib.sha1(named, usedforsecurity=False).hexdigest()
