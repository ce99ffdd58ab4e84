"""How are the processes of an instance ended, including the ones they started?

Each process gets SIGTERM first and SIGKILL after a grace period. Descendants are found by the token that they inherit
in their environment, because children can outlive their parents. Never signals any other process."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Sequence

import psutil

from crescendo.processes.ref import ProcessRef, is_alive

TOKEN = "CRESCENDO_INSTANCE"  # noqa: S105 - the name of a variable
_PART = "/"
_POLL_S = 0.02
_KILL_TIMEOUT_S = 5.0


def end_all(processes: Sequence[ProcessRef], token: str, grace_s: float, *, at_once: Collection[str] = ()) -> None:
    """End the processes one by one, the last first, and then kill the descendants that are left.

    Those whose names are in `at_once` have no grace period.
    """
    for process in reversed(processes):
        _end(process, 0 if process.name in at_once else grace_s)
    left = processes_with(token)
    for straggler in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            straggler.kill()
    psutil.wait_procs(left, _KILL_TIMEOUT_S)


def _end(process: ProcessRef, grace_s: float) -> None:
    """Send SIGTERM; after the grace period, kill the process and its descendants."""
    if not is_alive(process):
        return
    _signal(process, signal.SIGTERM)
    if _ends_within(process, grace_s):
        return
    descendants = _descendants(process)
    _signal(process, signal.SIGKILL)
    for child in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()  # psutil compares start times too
    _ends_within(process, _KILL_TIMEOUT_S)


def _signal(process: ProcessRef, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _ends_within(process: ProcessRef, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _descendants(process: ProcessRef) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def part_token(token: str, part: str) -> str:
    """The token of a part of an instance: its processes also count as those of the whole."""
    return f"{token}{_PART}{part}"


def processes_with(token: str) -> list[psutil.Process]:
    """Every process that inherited the token, or that of a part."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            inherited = process.environ().get(TOKEN, "")
            is_ours = inherited == token or inherited.startswith(token + _PART)
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
