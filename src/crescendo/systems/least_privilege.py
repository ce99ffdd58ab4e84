"""Which account does a system run as when root starts it?

One that can do as little as possible: a number that nobody else has, or the account that its blueprint names. That
account must be able to reach the directory of the instance and all that the system reads; where it cannot, the system
runs as root, and its facts say why. Anybody but root starts systems as themselves.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.unix_account import (
    UnixAccount,
    named_account,
    private_account,
    unreachable_parent,
    unusable,
)

_PRIVILEGED_PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


class ChosenAccount(NamedTuple):
    """The account of an instance; None is our own. As root, the reason says why it is our own."""

    account: UnixAccount | None
    reason: str | None = None


def choose_account(
    blueprint: Blueprint, installation: Installation, directory: Path, ports: Mapping[str, int]
) -> ChosenAccount:
    if os.geteuid() != 0:
        return ChosenAccount(None)
    if sys.platform != "linux":
        return ChosenAccount(None, "only on Linux a system gets an account of its own")
    account = private_account() if blueprint.account is None else named_account(blueprint.account)
    if account is None:
        return ChosenAccount(None, "this user namespace has no accounts for systems")
    name = blueprint.account or "an account of its own"
    if (parent := unreachable_parent(account, directory)) is not None:
        return ChosenAccount(None, f"{name} may not enter {parent}")
    if (path := unusable(account, _read_by(blueprint, installation))) is not None:
        return ChosenAccount(None, f"{name} may not use {path}, which it needs")
    if low := [port for port in ports.values() if port < _first_unprivileged_port()]:
        return ChosenAccount(None, f"only root may listen on port {low[0]}")
    return ChosenAccount(account)


def _read_by(blueprint: Blueprint, installation: Installation) -> list[Path]:
    paths = [Path(launch.argv[0]) for launch in blueprint.launches]
    paths += [path for path in (installation.home, installation.java) if path is not None]
    if sys.executable in {launch.argv[0] for launch in blueprint.launches}:
        libraries = sysconfig.get_config_var("LIBDIR") if sysconfig.get_config_var("Py_ENABLE_SHARED") else ""
        given = (sys.prefix, sys.base_prefix, libraries, *sys.path)
        paths += [Path(entry) for entry in given if entry and Path(entry).exists()]
    return [path for path in paths if path.is_absolute()]


def _first_unprivileged_port() -> int:
    try:
        return int(_PRIVILEGED_PORTS.read_text())
    except (OSError, ValueError):
        return 1024
