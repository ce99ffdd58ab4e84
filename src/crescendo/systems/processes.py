"""Which processes belong to an instance, and how do they all end?

A process is known by its number and its birth, because numbers are used again; its offspring by a token that they
inherit in their environment, because children outlive parents. Nothing else is ever signalled. Starts nothing.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from msgspec import Struct

TOKEN = "CRESCENDO_INSTANCE"  # noqa: S105 - the name of a variable
_POLL_S = 0.02
_KILL_TIMEOUT_S = 5.0
_START_TIME = 19  # field 22 of /proc/PID/stat, counted after the name, which may hold anything


class Mark(Struct, frozen=True):
    """One process, once and for all."""

    name: str
    pid: int
    birth: str  # ticks since the boot that is named with them: unlike a time of day, no clock change moves it


def mark(name: str, pid: int) -> Mark:
    """Remember a process that lives now."""
    return Mark(name, pid, _birth(pid) or "never")


def is_alive(process: Mark) -> bool:
    """Whether that very process still runs. A zombie does not."""
    return _birth(process.pid) == process.birth


def end_all(processes: Sequence[Mark], token: str, grace_s: float) -> None:
    """End them one after the other, the last one first, and then whatever they have left behind."""
    for process in reversed(processes):
        _end(process, grace_s)
    left = _holders(token)
    for straggler in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            straggler.kill()
    psutil.wait_procs(left, _KILL_TIMEOUT_S)


def _end(process: Mark, grace_s: float) -> None:
    """Ask it to end, and after a while make it and its descendants."""
    if not is_alive(process):
        return
    _signal(process, signal.SIGTERM)
    if _ends_within(process, grace_s):
        return
    family = _descendants(process)
    _signal(process, signal.SIGKILL)
    for child in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()  # psutil compares births too
    _ends_within(process, _KILL_TIMEOUT_S)


def _signal(process: Mark, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _ends_within(process: Mark, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _descendants(process: Mark) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _holders(token: str) -> list[psutil.Process]:
    """All processes that have inherited the token."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _birth(pid: int) -> str | None:
    """None: there is no such process, or it is a zombie."""
    if sys.platform != "linux":
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return repr(process.create_time())
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[_START_TIME]}"
