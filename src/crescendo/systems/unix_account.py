"""Which accounts of this machine can a process use, what can they reach, and how does a directory change hands?

Links are never followed and other people's files never given away: a process of the new owner could have put them
there. Creates no accounts.
"""

import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crescendo.model.errors import ConfigError

_PRIVATE_IDS = range(61_184, 65_520)
"""Where systemd takes the numbers of its dynamic users from: no distribution gives them to anybody else."""

_READ, _ENTER = 4, 1
_ATTEMPTS = 100


class UnixAccount(NamedTuple):
    """The account to switch to."""

    uid: int
    gid: int


def named_account(name: str) -> UnixAccount:
    """The account of that name; ConfigError when there is none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as err:
        raise ConfigError(f"there is no account called {name}; create it, or run as another user than root") from err
    return UnixAccount(entry.pw_uid, entry.pw_gid)


def private_account() -> UnixAccount | None:
    """A number that no account, no group and no process has; None when this user namespace has no such number."""
    used = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()} | _ids_of_processes()
    for _ in range(_ATTEMPTS):
        number = secrets.choice(_PRIVATE_IDS)
        if number not in used and _is_mapped(number, "uid_map") and _is_mapped(number, "gid_map"):
            return UnixAccount(number, number)
    return None


def unreachable_parent(account: UnixAccount, path: Path) -> Path | None:
    """The nearest directory above this path that the account may not enter; None when it can reach the path."""
    return next((parent for parent in path.parents if not _may(account, parent, _ENTER)), None)


def unusable(account: UnixAccount, paths: Iterable[Path]) -> Path | None:
    """The first of these files and directories that the account may not read, or what keeps it from reaching it."""
    existing = [path for path in paths if path.exists()]  # what is missing is reported by those who need it
    for path in dict.fromkeys(each for given in existing for each in (given.absolute(), given.resolve())):
        if (parent := unreachable_parent(account, path)) is not None:
            return parent
        if not _may(account, path, _READ | (_ENTER if path.is_dir() else 0)):
            return path
    return None


def give_directory(directory: Path, account: UnixAccount) -> None:
    """Make the account the owner of a directory of ours and of all in it."""
    ours = {os.geteuid(), account.uid}
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_owner(directory, os.fstat(top), ours)
        os.fchown(top, *account)
        for folder, directories, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            for name in (*directories, *files):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                _check_owner(directory / folder / name, status, ours)
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    raise ConfigError(f"{directory / folder / name} has another name elsewhere; it is not given away")
                os.chown(name, *account, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(top)


def _check_owner(path: Path, status: os.stat_result, ours: set[int]) -> None:
    if status.st_uid not in ours:
        raise ConfigError(f"{path} belongs to another account (uid {status.st_uid}); choose another directory")


def _may(account: UnixAccount, path: Path, bits: int) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        return status.st_mode >> 6 & bits == bits
    if status.st_gid == account.gid:
        return status.st_mode >> 3 & bits == bits
    return status.st_mode & bits == bits


def _ids_of_processes() -> set[int]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                found.add(entry.stat().st_uid)
            except OSError:
                continue
    return found


def _is_mapped(number: int, table: str) -> bool:
    """Whether this user namespace has the number."""
    try:
        lines = Path(f"/proc/self/{table}").read_text().splitlines()
    except OSError:
        return False
    ranges = [[int(field) for field in line.split()] for line in lines]
    return any(first <= number < first + count for first, _, count in ranges)
