"""To which lab does a process belong, and does the owner of that lab still live?

Every process of a lab inherits a variable that names the process that made the lab, so that what a killed one left can
be distinguished from what is in use. Ends nothing else.
"""

import contextlib
import os
from collections.abc import Iterator

import psutil

from crescendo.processes.ref import ProcessRef, is_alive, process_ref

LAB_VARIABLE = "CRESCENDO_LAB_OWNER"
_NAME = "lab"
_KILL_TIMEOUT_S = 5.0


def owner_mark() -> str:
    """What the processes of this process's labs carry in their environment."""
    owner = process_ref(_NAME, os.getpid())
    return f"{owner.pid} {owner.birth}"


def abandoned_processes() -> Iterator[psutil.Process]:
    """The processes of labs whose owner has ended."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mark = process.environ().get(LAB_VARIABLE)
            if mark is not None and process.status() != psutil.STATUS_ZOMBIE and not _owner_lives(mark):
                yield process


def end_abandoned() -> list[tuple[str, int]]:
    """Kill them, and wait until they are gone: their networks go with them. Returns names and pids."""
    ended = []
    left = list(abandoned_processes())
    for process in left:
        with contextlib.suppress(psutil.Error):
            ended.append((process.name(), process.pid))
            process.kill()
    psutil.wait_procs(left, _KILL_TIMEOUT_S)
    return ended


def _owner_lives(mark: str) -> bool:
    pid, _, birth = mark.partition(" ")
    return pid.isdecimal() and is_alive(ProcessRef(_NAME, int(pid), birth))
