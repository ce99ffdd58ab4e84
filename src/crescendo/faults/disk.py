"""How does the disk of a system become slow, frozen or full?

Slow by a control group that limits what its processes write to it per second; frozen as for a snapshot, so that every
write waits; full by a file that takes what is free. Only the loop disk of the system is touched, never a disk of this
machine.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from crescendo.faults import cures
from crescendo.faults.action import Cure, FaultAction, FaultNode, Length
from crescendo.faults.control_groups import Hierarchy, hierarchy_of, make_group, new_group, write_rate_files
from crescendo.faults.loop_disk import why_no_loop_disk
from crescendo.model.errors import PeerError
from crescendo.model.units import Size
from crescendo.processes.ending import processes_with

FILLER = ".crescendo-full"
DEFAULT_SIZE = Size(512 * 2**20)
_CONTROLLERS = ("blkio", "io")  # what versions 1 and 2 call it
_LEAST_RATE_BYTES = 4096
_LEAST_DISK_BYTES = 64 * 2**20


class DiskSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong with the disk, and how large it is."""

    state: Literal["slow", "frozen", "full"]
    rate: Size = Size(2**20)  # bytes per second that a slow disk writes
    size: Size = DEFAULT_SIZE

    def __post_init__(self) -> None:
        if self.size < _LEAST_DISK_BYTES:
            raise ValueError("size must be at least 64MiB")
        if self.rate < _LEAST_RATE_BYTES:
            raise ValueError("rate must be at least 4KiB")


class BreakDisk(FaultAction[FaultNode, DiskSettings]):
    """Makes the data directory of a system slow, frozen or full."""

    name = "disk"
    summary = "the disk of the system's data is `slow` (`rate`), `frozen` or `full`; needs root"
    settings = DiskSettings
    length = Length.OPTIONAL

    def why_not(self, settings: DiskSettings) -> str:
        reason = why_no_loop_disk()
        if not reason and settings.state == "slow" and _hierarchy() is None:
            return "no control group limits what a process writes"
        return reason

    def prepare(self, target: FaultNode, settings: DiskSettings) -> Cure:
        mount_point = _disk_of(target)
        match settings.state:
            case "frozen":
                return _cure(cures.thaw.__name__, {"mount_point": str(mount_point)})
            case "full":
                return _cure(cures.remove_file.__name__, {"path": str(mount_point / FILLER)})
            case "slow":
                hierarchy = _hierarchy()
                if hierarchy is None:
                    raise PeerError("no control group limits what a process writes")
                group, home = new_group(hierarchy, _CONTROLLERS[hierarchy.version - 1], target.main_process.pid)
                return _cure(cures.remove_group.__name__, {"path": str(group), "home": str(home)})

    def apply(self, target: FaultNode, settings: DiskSettings, cure: Cure | None) -> str:
        mount_point = _disk_of(target)
        match settings.state:
            case "frozen":
                cures.freeze(str(mount_point))
                return "fsfreeze"
            case "full":
                return f"{_fill(mount_point / FILLER):,} bytes were free"
            case "slow":
                pids = [process.pid for process in processes_with(target.token)]
                return _slow_down(mount_point, settings.rate, cure, pids)


def _slow_down(mount_point: Path, rate: int, cure: Cure | None, pids: Sequence[int]) -> str:
    hierarchy = _hierarchy()
    if hierarchy is None or cure is None:
        raise PeerError("no control group limits what a process writes")
    device = os.stat(mount_point).st_dev
    files = write_rate_files(hierarchy, os.major(device), os.minor(device), rate)
    try:
        make_group(Path(cure.arguments["path"]), hierarchy, _CONTROLLERS[hierarchy.version - 1], files, list(pids))
    except OSError as err:
        raise PeerError(f"the kernel refuses the control group: {err}") from err
    return f"control group, version {hierarchy.version}"


def _fill(filler: Path) -> int:
    """Take what is free; how many bytes that was."""
    found = os.statvfs(filler.parent)
    free = found.f_bavail * found.f_frsize
    with filler.open("xb") as file:
        step = 2**20
        taken = 0
        while step:
            try:
                os.posix_fallocate(file.fileno(), taken, step)
                taken += step
            except OSError:
                step //= 2 if step > found.f_frsize else step + 1
    return int(free)


def _hierarchy() -> Hierarchy | None:
    found = [hierarchy_of(name) for name in _CONTROLLERS]
    return next((each for each in found if each is not None), None)


def _disk_of(target: FaultNode) -> Path:
    if target.disk is None:
        raise PeerError(f"{target.name} has no disk of its own")
    return target.disk


def _cure(function: str, arguments: dict[str, str]) -> Cure:
    return Cure(f"{cures.__name__}:{function}", arguments)


DISK = BreakDisk()
