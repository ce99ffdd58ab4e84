"""What lies in the directory of an embedded PostgreSQL, and how did it get there?

    owner      a mark: we made this directory, so we may hand it to another account and start servers in it
    lock       held while a server of ours runs
    password   of the one account; for our eyes only
    data/      PostgreSQL's own, made whole or not at all
    socket/    where it listens
    log        what it has to say
    programs/  a copy of PostgreSQL, where its account cannot reach the wheel: root's home is closed to it

A directory with anything else in it is refused: as root we would give it away. Starts no server.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from crescendo.mlmq.postgres.binaries import find
from crescendo.model.errors import ConfigError
from crescendo.processes.logs import last_log_lines
from crescendo.systems.instance_dir import MIN_FREE_BYTES, free_bytes
from crescendo.systems.unix_account import UnixAccount, unprivileged_account, unreachable_parent

USER: Final = "mlmq"
UNPRIVILEGED: Final = "nobody"  # PostgreSQL refuses to run as root
SOCKET_PORT: Final = 5432  # part of the socket's file name; no port of the machine
_MAX_SOCKET_PATH_BYTES = 107
_INIT_TIMEOUT_S = 120.0
_OWNER, _LOCK, _PASSWORD, _LOG, _DATA, _SOCKET = "owner", "lock", "password", "log", "data", "socket"
_PROGRAMS = "programs"


class Cluster:
    """A prepared directory, locked until `release`."""

    def __init__(self, directory: Path | None) -> None:
        self.temporary = directory is None
        self.directory = _make(directory)
        self._held: list[int] = []
        self._elsewhere: Path | None = None
        try:
            self._held.append(_lock(self.directory))
            self.socket = self._socket_directory()
            self.account = self._hand_over()
            self.binaries = self._within_reach(find(self.data))
            if not (self.data / "PG_VERSION").exists():
                self._initialise()
            self.password = (self.directory / _PASSWORD).read_text().strip()
        except OSError as err:
            self.release()
            raise ConfigError(f"{self.directory} cannot hold a database: {err.strerror}; choose another") from err
        except BaseException:
            self.release()
            raise

    @property
    def data(self) -> Path:
        return self.directory / _DATA

    @property
    def log(self) -> Path:
        return self.directory / _LOG

    def environment(self) -> Mapping[str, str]:
        """Nothing of ours: PG* variables of the caller must not reach the server."""
        return {"PATH": str(self.binaries), "LANG": "C", "TZ": "UTC", "HOME": str(self.directory)}

    def failure(self, what: str) -> ConfigError:
        """Why it does not work, with what the program said last."""
        if free_bytes(self.directory) < MIN_FREE_BYTES:
            what += f"; the disk of {self.directory} is full"
        words = last_log_lines(self.log)
        return ConfigError(f"{what}; its last words: {words}" if words else what)

    def release(self) -> None:
        """Let others use the directory; a temporary one disappears."""
        if self._elsewhere is not None:
            shutil.rmtree(self._elsewhere, ignore_errors=True)
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        while self._held:
            os.close(self._held.pop())

    def _socket_directory(self) -> Path:
        socket = self.directory / _SOCKET
        if len(os.fsencode(socket / f".s.PGSQL.{SOCKET_PORT}")) > _MAX_SOCKET_PATH_BYTES:
            socket = self._elsewhere = Path(tempfile.mkdtemp(prefix="crescendo-pg-"))
        socket.mkdir(mode=0o700, exist_ok=True)
        return socket

    def _hand_over(self) -> UnixAccount | None:
        if self._elsewhere is not None:
            unprivileged_account(_account_for_root(), self._elsewhere)
        return unprivileged_account(_account_for_root(), self.directory)

    def _within_reach(self, binaries: Path) -> Path:
        if self.account is None or unreachable_parent(self.account, binaries / "postgres") is None:
            return binaries
        programs = self.directory / _PROGRAMS
        shutil.rmtree(programs, ignore_errors=True)  # of another version, perhaps
        installation, package = binaries.parent, binaries.parent.parent
        copied = programs / package.name / installation.name
        shutil.copytree(installation, copied, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # which the programs look for beside their package
        if libraries.is_dir():
            shutil.copytree(libraries, programs / libraries.name, symlinks=True)
        for path in (programs, *programs.rglob("*")):
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)
        return copied / binaries.name

    def _initialise(self) -> None:
        """Into a directory beside, which takes its name when it is whole: a crash leaves nothing that looks ready."""
        if free_bytes(self.directory) < MIN_FREE_BYTES:
            raise self.failure(f"no database can be made in {self.directory}")
        password, unfinished = self.directory / _PASSWORD, self.directory / f"{_DATA}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _write_private(password, secrets.token_urlsafe(24), self.account)
        command = [
            str(self.binaries / "initdb"), f"--pgdata={unfinished}", f"--username={USER}", f"--pwfile={password}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-instructions",
        ]  # fmt: skip
        if self.temporary:
            command.append("--no-sync")  # nobody comes back to it after a power failure
        try:
            with self.log.open("wb") as log:
                ended = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment(),
                    cwd=self.directory,
                    user=self.account.uid if self.account else None,
                    group=self.account.gid if self.account else None,
                    extra_groups=[] if self.account else None,
                    umask=0o077,
                    timeout=_INIT_TIMEOUT_S,
                    check=False,
                )
        except subprocess.TimeoutExpired as err:
            raise self.failure(f"no database was made in {self.directory} within {_INIT_TIMEOUT_S:.0f} s") from err
        except OSError as err:
            raise ConfigError(f"{command[0]} cannot be started: {err.strerror}; {_reach(self.account)}") from err
        if ended.returncode:
            failure = self.failure(f"no database could be made in {self.directory} (exit code {ended.returncode})")
            shutil.rmtree(unfinished, ignore_errors=True)
            raise failure
        unfinished.rename(self.data)
        _sync(self.directory)


def _make(directory: Path | None) -> Path:
    """The directory itself, for our eyes only."""
    if directory is None:
        made = Path(tempfile.mkdtemp(prefix="crescendo-mlmq-"))
        (made / _OWNER).touch(mode=0o600)
        return made
    made = directory.absolute()
    try:
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (made / _OWNER).exists():
            if any(made.iterdir()):
                raise ConfigError(
                    f"{made} is not empty and no data directory of ours; name one that is empty or does not exist"
                )
            (made / _OWNER).touch(mode=0o600)
        made.chmod(0o700)
    except OSError as err:
        raise ConfigError(f"{made} cannot hold a database: {err.strerror}; choose another directory") from err
    return made


def _lock(directory: Path) -> int:
    held = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(held)
        raise ConfigError(f"{directory} is in use by another broker; stop it, or choose another directory") from err
    return held


def _account_for_root() -> str | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None


def _reach(account: UnixAccount | None) -> str:
    return f"account {UNPRIVILEGED} must be able to reach it" if account else "see that it may be executed"


def _write_private(path: Path, text: str, account: UnixAccount | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    if account:
        os.chown(path, account.uid, account.gid)


def _sync(directory: Path) -> None:
    held = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
