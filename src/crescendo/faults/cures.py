"""How is a fault undone, also by a process that knows only what is written down?

Functions with plain arguments. Each may be called twice, and when there is nothing left to undo; what belongs to others
is never touched: processes are found by the token of their node.
"""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from crescendo.processes.ending import processes_with
from crescendo.processes.ref import ProcessRef, is_alive

_REMOVE_TIMEOUT_S = 5.0
_POLL_S = 0.02


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


def restore_limits(limit: int, processes: Sequence[tuple[str, int, str, int]]) -> None:
    """Give processes their earlier soft limit; name, pid, birth and limit of each."""
    for name, pid, birth, soft in processes:
        if is_alive(ProcessRef(name, pid, birth)):
            with contextlib.suppress(OSError, ValueError):
                hard = resource.prlimit(pid, limit)[1]
                resource.prlimit(pid, limit, (soft, hard))
