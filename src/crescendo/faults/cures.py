"""How is a fault undone, also by a process that knows only what is written down?

Functions with plain arguments. Each may be called twice, and when there is nothing left to undo; what belongs to others
is never touched: processes are found by the token of their node.
"""

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from crescendo.processes.ending import processes_with
from crescendo.processes.ref import ProcessRef, is_alive

_REMOVE_TIMEOUT_S = 5.0
_POLL_S = 0.02
_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878  # of linux/fs.h


def continue_processes(token: str) -> None:
    """Let the processes of a node run again."""
    for process in processes_with(token):
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGCONT)


def remove_group(path: str, home: str) -> None:
    """Move the processes of a control group back to where they were, and remove it."""
    deadline_s = time.monotonic() + _REMOVE_TIMEOUT_S
    group = Path(path)
    while group.is_dir():
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):  # it ended
                    (Path(home) / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):  # busy while a process of it ends
            group.rmdir()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{path} cannot be removed")
        if group.is_dir():
            time.sleep(_POLL_S)


def freeze(mount_point: str) -> None:
    """Let every write to this file system wait."""
    _call(mount_point, _FIFREEZE)


def thaw(mount_point: str) -> None:
    """Let writes go on; nothing happens if none waited."""
    with contextlib.suppress(OSError):
        _call(mount_point, _FITHAW)


def _call(mount_point: str, request: int) -> None:
    directory = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(directory, request, 0)
    finally:
        os.close(directory)


def remove_file(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def unmount(mount_point: str, image: str) -> None:
    """Unmount a loop disk when its processes have ended, and remove its image. Not while it is frozen."""
    deadline_s = time.monotonic() + _REMOVE_TIMEOUT_S
    while os.path.ismount(mount_point):
        thaw(mount_point)
        patient = time.monotonic() < deadline_s
        # At last it disappears from here, and goes when the last process that uses it ends.
        command = ["umount", mount_point] if patient else ["umount", "--lazy", mount_point]
        done = subprocess.run(command, capture_output=True, timeout=_REMOVE_TIMEOUT_S * 4, check=False)
        if done.returncode and not patient:
            raise TimeoutError(f"{mount_point} cannot be unmounted: {done.stderr.decode(errors='replace').strip()}")
        if done.returncode:
            time.sleep(_POLL_S)
    remove_file(image)


def set_clock(file: str, jump_s: float) -> None:
    """Let the wall clock of the processes that follow this file be off by so much; nothing if there is no such file."""
    path = Path(file)
    if path.exists():
        path.write_text(f"{jump_s:+.3f}s\n")


def restore_limits(limit: int, processes: Sequence[tuple[str, int, str, int]]) -> None:
    """Give processes their earlier soft limit; name, pid, birth and limit of each."""
    for name, pid, birth, soft in processes:
        if is_alive(ProcessRef(name, pid, birth)):
            with contextlib.suppress(OSError, ValueError):
                hard = resource.prlimit(pid, limit)[1]
                resource.prlimit(pid, limit, (soft, hard))
