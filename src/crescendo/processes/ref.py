"""How is one process identified, even after its pid is reused?

By its pid and its start time, because the kernel reuses pids. Starts and signals nothing.
"""

import contextlib
import sys
from pathlib import Path

import psutil
from msgspec import Struct

_START_TIME = 19  # field 22 of /proc/PID/stat, counted after the name, which may hold anything


class ProcessRef(Struct, frozen=True):
    """One process, identified beyond the reuse of its pid."""

    name: str
    pid: int
    birth: str  # boot id and ticks since that boot: unlike a time of day, no clock change moves it


def process_ref(name: str, pid: int) -> ProcessRef:
    """A reference to a process that is alive now."""
    return ProcessRef(name, pid, _birth(pid) or "never")


def is_alive(process: ProcessRef) -> bool:
    """Whether that same process still runs. A zombie does not count."""
    return _birth(process.pid) == process.birth


def _birth(pid: int) -> str | None:
    """The start time; None when there is no such process or it is a zombie."""
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
