"""How does the kernel limit the processor time, the memory and the disk writes of a node?

By a control group, version 1 or 2, whichever controls that resource on this machine; the group of a node is made inside
the one that it is in. Groups are named after the process that made them, so that those of a process that died are found
and removed. Chooses no substitute where there are none: `resource_limits.py` does.
"""

import contextlib
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from crescendo.faults.owner import owner_lives, owner_name

PERIOD_US = 100_000
_PREFIX = "crescendo"
_V1, _V2 = "cgroup", "cgroup2"
_numbers = count()


class Hierarchy(NamedTuple):
    """Where one resource is controlled."""

    mount: Path
    version: int

    def home_of(self, controller: str, pid: int) -> Path:
        """The group that a process is in."""
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if (controller in controllers.split(",")) if self.version == 1 else not controllers:
                home = self.mount / path.lstrip("/")
                return home if home.is_dir() else self.mount
        return self.mount


def hierarchy_of(controller: str, mounts: str | None = None) -> Hierarchy | None:
    """Where this resource is controlled; None if we may not, or nowhere."""
    for line in (Path("/proc/mounts").read_text() if mounts is None else mounts).splitlines():
        _, mount, kind, options, *_ = line.split()
        root = Path(mount)
        if kind == _V1 and controller in options.split(",") and os.access(root, os.W_OK):
            return Hierarchy(root, 1)
        if kind == _V2 and _controls(root, controller) and os.access(root, os.W_OK):
            return Hierarchy(root, 2)
    return None


def _controls(root: Path, controller: str) -> bool:
    try:
        return controller in (root / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def new_group(hierarchy: Hierarchy, controller: str, pid: int) -> tuple[Path, Path]:
    """The path of a group for a process, which is not made yet, and the group that it is in."""
    home = hierarchy.home_of(controller, pid)
    parent = home if hierarchy.version == 1 else hierarchy.mount  # version 2 forbids groups beside processes
    return parent / f"{_PREFIX}-{owner_name()}-{next(_numbers)}", home


def make_group(group: Path, hierarchy: Hierarchy, controller: str, files: dict[str, str], pids: list[int]) -> None:
    """Make a group with these limits and move processes into it. Raises OSError."""
    if hierarchy.version == 2:
        (hierarchy.mount / "cgroup.subtree_control").write_text(f"+{controller}")
    group.mkdir(exist_ok=True)
    for name, value in files.items():
        (group / name).write_text(value)
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))


def cpu_files(hierarchy: Hierarchy, share: float) -> dict[str, str]:
    quota_us = max(int(share * PERIOD_US), 1000)
    if hierarchy.version == 2:
        return {"cpu.max": f"{quota_us} {PERIOD_US}"}
    return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}


def memory_files(hierarchy: Hierarchy, limit_bytes: int) -> dict[str, str]:
    return {"memory.max" if hierarchy.version == 2 else "memory.limit_in_bytes": str(limit_bytes)}


def write_rate_files(hierarchy: Hierarchy, major: int, minor: int, rate_bytes: int) -> dict[str, str]:
    """What a group may write to one device per second."""
    if hierarchy.version == 2:
        return {"io.max": f"{major}:{minor} wbps={rate_bytes}"}
    return {"blkio.throttle.write_bps_device": f"{major}:{minor} {rate_bytes}"}


def remove_abandoned() -> list[Path]:
    """Remove the groups whose makers have died; which were removed."""
    removed = []
    for group in abandoned_groups():
        with contextlib.suppress(OSError):  # processes that we do not know are in it
            group.rmdir()
            removed.append(group)
    return removed


def abandoned_groups() -> Iterator[Path]:
    for controller in ("cpu", "memory", "blkio"):
        hierarchy = hierarchy_of(controller)
        if hierarchy is None:
            continue
        for group in hierarchy.mount.glob(f"**/{_PREFIX}-*-*-*"):
            _, pid, born, _ = group.name.split("-", 3)
            if pid.isdecimal() and not owner_lives(f"{pid}-{born}"):
                yield group
