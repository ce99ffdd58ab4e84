"""Which commands create namespaces and run programs in them?

`unshare` and `nsenter` of util-linux, because a Python process with threads cannot change its namespaces safely. As
root they are created directly; for others inside a user namespace, where the kernel allows it. Builds argument lists
and asks the kernel; starts nothing that stays.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from crescendo.model.errors import ConfigError

_TRIAL_TIMEOUT_S = 10.0


def is_rootless() -> bool:
    """Whether namespaces need a user namespace around them."""
    return os.geteuid() != 0


def unshare_network(argv: Sequence[str], *, rootless: bool) -> list[str]:
    """Run a program in a new network, which belongs to a new user namespace if rootless."""
    return ["unshare", *(("--user", "--map-root-user") if rootless else ()), "--net", "--", *argv]


def unshare_host(argv: Sequence[str], *, clock_shift_s: int = 0) -> list[str]:
    """Run a program on a new host: a network, a host name and, if its clock is shifted, a clock of its own."""
    # A process never changes its own clock namespace, only that of its children: hence the fork.
    clock = ["--time", "--monotonic", str(clock_shift_s), "--fork"] if clock_shift_s else []
    return ["unshare", "--net", "--uts", *clock, "--", *argv]


def enter_user(pid: int, argv: Sequence[str], *, rootless: bool) -> list[str]:
    """Run a program with the rights over the networks that the process `pid` created."""
    return ["nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--", *argv] if rootless else [*argv]


def enter_network(pid: int, argv: Sequence[str], *, rootless: bool) -> list[str]:
    """Run a program in the network of the process `pid`, but with the name and the clock of this machine."""
    user = ("--user", "--preserve-credentials") if rootless else ()
    return ["nsenter", "--target", str(pid), *user, "--net", "--", *argv]


def enter_host(pid: int, argv: Sequence[str], *, rootless: bool, own_clock: bool) -> list[str]:
    """Run a program on the host of the process `pid`."""
    # The clock of the machine is the machine's: only its root may enter it, even where a process has it already.
    clock = ("--time",) if own_clock else ()
    user = ("--user", "--preserve-credentials") if rootless else ()
    return ["nsenter", "--target", str(pid), *user, "--net", "--uts", *clock, "--", *argv]


def why_not_permitted() -> str:
    """Why this machine cannot run hosts as namespaces, and the cure; empty if it can."""
    if sys.platform != "linux":
        return "hosts are network namespaces, which only Linux has"
    if missing := [name for name in ("unshare", "nsenter") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} not found; install util-linux"
    try:
        import pyroute2  # noqa: F401
    except ImportError:
        return "pyroute2 is not installed; pip install pyroute2"
    trial = unshare_network(unshare_host(["true"], clock_shift_s=1), rootless=is_rootless())
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(trial)}` did not end within {_TRIAL_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return ""
    cure = (
        "allow user namespaces (sysctl user.max_user_namespaces), or run as root"
        if is_rootless()
        else ("run outside of a container, or give it CAP_SYS_ADMIN")
    )
    return f"the kernel refuses namespaces ({done.stderr.strip()}); {cure}"


def require_permission() -> None:
    if reason := why_not_permitted():
        raise ConfigError(f"lab: {reason}")
