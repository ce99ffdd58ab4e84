"""As whom does a process of a system run?

As ourselves, unless we are root and it asks for an unprivileged account: then as that one, which must be able to reach
the instance's directory and gets it for its own. Creates no accounts.
"""

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from crescendo.model.errors import ConfigError


class UnixAccount(NamedTuple):
    """Whom to become."""

    uid: int
    gid: int


def unprivileged(name: str | None, directory: Path) -> UnixAccount | None:
    """The account to become for a process in that directory. None: stay who we are."""
    if name is None or os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError as err:
        raise ConfigError(f"there is no account called {name}; create it, or run as somebody else than root") from err
    account = UnixAccount(entry.pw_uid, entry.pw_gid)
    closed = closed_to(account, directory)
    if closed is not None:
        raise ConfigError(f"{name} may not enter {closed}; choose a place that every account can reach")
    _hand_over(directory, account)
    return account


def closed_to(account: UnixAccount, path: Path) -> Path | None:
    """The directory above this path that the account may not enter; None when it can reach it."""
    return next((parent for parent in path.parents if not _may_pass(account, parent)), None)


def _may_pass(account: UnixAccount, directory: Path) -> bool:
    facts = directory.stat()
    if facts.st_uid == account.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == account.gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


def _hand_over(directory: Path, account: UnixAccount) -> None:
    os.chown(directory, *account)
    for path in directory.rglob("*"):
        os.chown(path, *account, follow_symlinks=False)
