"""Which account does a process of a system run as?

Our own, unless we are root and the launch names an unprivileged account. That account must be able to reach the
instance's directory and becomes its owner. Creates no accounts.
"""

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from crescendo.model.errors import ConfigError


class UnixAccount(NamedTuple):
    """The account to switch to."""

    uid: int
    gid: int


def unprivileged_account(name: str | None, directory: Path) -> UnixAccount | None:
    """The account for a process in that directory, which it then owns. None: keep our own account."""
    if name is None or os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError as err:
        raise ConfigError(f"there is no account called {name}; create it, or run as another user than root") from err
    account = UnixAccount(entry.pw_uid, entry.pw_gid)
    unreachable = unreachable_parent(account, directory)
    if unreachable is not None:
        raise ConfigError(f"{name} may not enter {unreachable}; choose a directory that every account can reach")
    _change_owner(directory, account)
    return account


def unreachable_parent(account: UnixAccount, path: Path) -> Path | None:
    """The nearest directory above this path that the account may not enter; None when it can reach the path."""
    return next((parent for parent in path.parents if not _may_enter(account, parent)), None)


def _may_enter(account: UnixAccount, directory: Path) -> bool:
    status = directory.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _change_owner(directory: Path, account: UnixAccount) -> None:
    os.chown(directory, *account)
    for path in directory.rglob("*"):
        os.chown(path, *account, follow_symlinks=False)
