"""What is in the directory of an embedded PostgreSQL, and how is it prepared?

    owner      a marker: we created this directory, so we may hand it to another account and start servers in it
    lock       held while a server of ours runs
    password   of the only account; readable by us alone
    data/      PostgreSQL's own data, created completely or not at all
    socket/    where it listens
    log        its log
    programs/  a copy of PostgreSQL, for when its account cannot reach the wheel: root's home is closed to it

A directory with anything else in it is refused: as root we would give it away. Starts no server.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from crescendo.mlmq.postgres.binaries import find
from crescendo.model.errors import ConfigError
from crescendo.processes.log_tail import last_log_lines
from crescendo.systems.instance_dir import MIN_FREE_BYTES, free_bytes
from crescendo.systems.unix_account import UnixAccount, give_directory, named_account, unreachable_parent

USER: Final = "mlmq"
UNPRIVILEGED: Final = "nobody"  # PostgreSQL refuses to run as root
SOCKET_PORT: Final = 5432  # part of the socket's file name, not a TCP port
_MAX_SOCKET_PATH_BYTES = 107
_INIT_TIMEOUT_S = 120.0
_OWNER, _LOCK, _PASSWORD, _LOG, _DATA, _SOCKET = "owner", "lock", "password", "log", "data", "socket"
_PROGRAMS = "programs"
_PREFIX = "crescendo-mlmq-"
_ABANDONED_AFTER_S = 30.0  # a directory that is younger may be about to get its lock


class Cluster:
    """A prepared directory, locked until `release`."""

    def __init__(self, directory: Path | None, password: str | None = None) -> None:
        """`password` of the only account when the database is created; None: a random one."""
        self._first_password = password or secrets.token_urlsafe(24)
        self.temporary = directory is None
        self.directory = _create_directory(directory)
        self._open_fds: list[int] = []
        self._outside_socket_dir: Path | None = None
        try:
            self._open_fds.append(_lock(self.directory))
            self.socket = self._socket_directory()
            self.account = self._give_to_account()
            self.binaries = self._reachable_binaries(find(self.data))
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
        """Nothing inherited: PG* variables of the caller must not reach the server."""
        return {"PATH": str(self.binaries), "LANG": "C", "TZ": "UTC", "HOME": str(self.directory)}

    def failure(self, what: str) -> ConfigError:
        """An error with the last log lines of the program."""
        if free_bytes(self.directory) < MIN_FREE_BYTES:
            what += f"; the disk of {self.directory} is full"
        log_lines = last_log_lines(self.log)
        return ConfigError(f"{what}; last log lines: {log_lines}" if log_lines else what)

    def release(self) -> None:
        """Unlock the directory; a temporary one is removed."""
        if self._outside_socket_dir is not None:
            shutil.rmtree(self._outside_socket_dir, ignore_errors=True)
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        while self._open_fds:
            os.close(self._open_fds.pop())

    def _socket_directory(self) -> Path:
        socket = self.directory / _SOCKET
        if len(os.fsencode(socket / f".s.PGSQL.{SOCKET_PORT}")) > _MAX_SOCKET_PATH_BYTES:
            socket = self._outside_socket_dir = Path(tempfile.mkdtemp(prefix="crescendo-pg-"))
        socket.mkdir(mode=0o700, exist_ok=True)
        return socket

    def _give_to_account(self) -> UnixAccount | None:
        account = _account_for_root()
        if account is not None:
            unreachable = unreachable_parent(account, self.directory)
            if unreachable is not None:
                cure = "choose a directory that every account can reach"
                raise ConfigError(f"{UNPRIVILEGED} may not enter {unreachable}; {cure}")
            for directory in filter(None, (self._outside_socket_dir, self.directory)):
                give_directory(directory, account)
        return account

    def _reachable_binaries(self, binaries: Path) -> Path:
        if self.account is None or unreachable_parent(self.account, binaries / "postgres") is None:
            return binaries
        programs = self.directory / _PROGRAMS
        shutil.rmtree(programs, ignore_errors=True)  # perhaps of another version
        installation, package = binaries.parent, binaries.parent.parent
        copied = programs / package.name / installation.name
        shutil.copytree(installation, copied, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # the programs expect them beside their package
        if libraries.is_dir():
            shutil.copytree(libraries, programs / libraries.name, symlinks=True)
        for path in (programs, *programs.rglob("*")):
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)
        return copied / binaries.name

    def _initialise(self) -> None:
        """Create the data under another name and rename it at the end: a crash leaves nothing that looks ready."""
        if free_bytes(self.directory) < MIN_FREE_BYTES:
            raise self.failure(f"no database can be created in {self.directory}")
        password, unfinished = self.directory / _PASSWORD, self.directory / f"{_DATA}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _write_private(password, self._first_password, self.account)
        command = [
            str(self.binaries / "initdb"), f"--pgdata={unfinished}", f"--username={USER}", f"--pwfile={password}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale",
        ]  # fmt: skip
        if self.temporary:
            command.append("--no-sync")  # not needed after a power failure
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
            raise self.failure(f"no database was created in {self.directory} within {_INIT_TIMEOUT_S:.0f} s") from err
        except OSError as err:
            raise ConfigError(f"{command[0]} cannot be started: {err.strerror}; {_access_hint(self.account)}") from err
        if ended.returncode:
            failure = self.failure(f"no database could be created in {self.directory} (exit code {ended.returncode})")
            shutil.rmtree(unfinished, ignore_errors=True)
            raise failure
        unfinished.rename(self.data)
        _sync(self.directory)


def _create_directory(directory: Path | None) -> Path:
    """The directory, readable by us alone."""
    if directory is None:
        remove_abandoned()
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        (path / _OWNER).touch(mode=0o600)
        return path
    path = directory.absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_others(path)
        if not (path / _OWNER).exists():
            if any(path.iterdir()):
                raise ConfigError(
                    f"{path} is not empty and not one of our data directories; name one that is empty or does not exist"
                )
            (path / _OWNER).touch(mode=0o600)
        path.chmod(0o700)
    except OSError as err:
        raise ConfigError(f"{path} cannot hold a database: {err.strerror}; choose another directory") from err
    return path


def remove_abandoned() -> list[Path]:
    """Remove temporary directories whose broker was killed: of our account, with our marker, and locked by nobody."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = path.lstat()
            young = time.time() - status.st_mtime < _ABANDONED_AFTER_S
            if not stat.S_ISDIR(status.st_mode) or young or not (path / _OWNER).exists():
                continue
            _refuse_others(path)
            fd = _lock(path, create=False)
        except (OSError, ConfigError):
            continue  # in use, of another account, or without a lock: not ours to remove
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)
        removed.append(path)
    return removed


def _refuse_others(path: Path) -> None:
    """Refuse a directory or a link that another account made: its files would be believed, and run."""
    account = _account_for_root()
    ours = {os.geteuid(), *(() if account is None else (account.uid,))}
    for status in (path.lstat(), path.stat()):
        if status.st_uid not in ours:
            raise ConfigError(f"{path} belongs to another account (uid {status.st_uid}); choose another directory")


def _lock(directory: Path, *, create: bool = True) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    fd = os.open(directory / _LOCK, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(fd)
        raise ConfigError(f"{directory} is in use by another broker; stop it, or choose another directory") from err
    return fd


def _account_for_root() -> UnixAccount | None:
    return named_account(UNPRIVILEGED) if os.geteuid() == 0 else None


def _access_hint(account: UnixAccount | None) -> str:
    return f"account {UNPRIVILEGED} must be able to reach it" if account else "make sure that it is executable"


def _write_private(path: Path, text: str, account: UnixAccount | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    if account:
        os.chown(path, account.uid, account.gid)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
