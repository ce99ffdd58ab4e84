"""How does a system get a disk of its own, which can be slow, frozen or full?

An image file with an ext4 file system, mounted over the data directory before the system starts, and unmounted after it
has ended. What unmounts it is owed from the beginning, so that a run that is killed leaves no mount. Breaks nothing:
`disk.py` does.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path

from crescendo.faults import cures
from crescendo.faults.action import Cure
from crescendo.faults.owner import owner_lives, owner_name
from crescendo.model.errors import ConfigError

_TIMEOUT_S = 60.0
_PREFIX, _SUFFIX = "crescendo-disk-", ".img"
_numbers = count()
_PROGRAMS = ("mkfs.ext4", "mount", "umount")

Owe = Callable[[Cure], Callable[[], None]]
"""Promises a cure, and returns what takes the promise back."""


def why_no_loop_disk() -> str:
    """Why this machine can mount none; empty if it can."""
    if os.geteuid() != 0:
        return "a disk of its own needs root"
    missing = [name for name in _PROGRAMS if _program(name) is None]
    if missing:
        return f"it needs the command {missing[0]}; install e2fsprogs and mount"
    return "" if Path("/dev/loop-control").exists() else "this kernel has no loop devices"


def image_name() -> str:
    """A new name of an image of ours."""
    return f"{_PREFIX}{owner_name()}-{next(_numbers)}{_SUFFIX}"


def remove_abandoned_disks() -> list[str]:
    """Unmount the disks whose makers have died; where they were mounted."""
    removed = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            image = Path(backing.read_text().strip())
            owner, _, number = image.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).rpartition("-")
            if image.name == f"{_PREFIX}{owner}-{number}{_SUFFIX}" and not owner_lives(owner):
                for mount_point in _mounts_of(f"/dev/{backing.parts[3]}"):
                    cures.unmount(mount_point, str(image))
                    removed.append(mount_point)
    return removed


def _mounts_of(device: str) -> list[str]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [_unescaped(fields[1]) for fields in mounts if fields[0] == device]


def _unescaped(path: str) -> str:
    """A path as /proc/mounts writes it: white space and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


class LoopDisk:
    """One disk of one system."""

    def __init__(self, image: Path, size_bytes: int, owe: Owe) -> None:
        self._image, self._size_bytes, self._owe = image, size_bytes, owe
        self._settle: Callable[[], None] = lambda: None
        self._cure: Cure | None = None
        self.mount_point: Path | None = None

    def attach(self, directory: Path) -> None:
        """Make the disk and mount it over an empty directory."""
        arguments = {"mount_point": str(directory), "image": str(self._image)}
        self._cure = Cure(f"{cures.__name__}:{cures.unmount.__name__}", arguments)
        self._settle = self._owe(self._cure)
        with self._image.open("xb") as file:
            file.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        _run("mount", "-o", "loop", str(self._image), str(directory))
        self.mount_point = directory
        (directory / "lost+found").rmdir()

    def detach(self) -> None:
        """Unmount and remove it, after its processes have ended. Safe to call twice."""
        if self._cure is not None:
            self._cure.carry_out()
            self._settle()


def _run(name: str, *arguments: str) -> None:
    try:
        done = subprocess.run(
            [_program(name) or name, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"faults: the disk of the system cannot be made: {name}: {err}") from err
    if done.returncode:
        raise ConfigError(f"faults: the disk of the system cannot be made: {name}: {done.stderr.strip()[:300]}")


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
