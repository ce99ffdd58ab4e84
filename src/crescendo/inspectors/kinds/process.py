"""What does a process, with all its descendants, cost this machine?

CPU, memory, threads, descriptors, context switches and I/O of the whole tree, and the traffic of the interfaces that
the process sees. The totals include children that have ended, so that they never decrease. Values that the kernel does
not disclose are left out.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.model.errors import ConfigError, PeerError

TREE = "process"
_COUNTERS = ("cpu_seconds", "voluntary_switches", "involuntary_switches", "read_bytes", "written_bytes")
_SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
_INTERFACE_COLUMNS = {
    0: "received_bytes", 1: "received_packets", 2: "received_errors", 3: "received_dropped",
    8: "sent_bytes", 9: "sent_packets", 10: "sent_errors", 11: "sent_dropped",
}  # fmt: skip
"""Columns of a line of /proc/PID/net/dev."""


class ProcessInspector:
    """Inspects one process tree of this machine."""

    def __init__(self, target: InspectionTarget) -> None:
        if target.pid is None:
            raise ConfigError("inspect: process needs a pid, because Crescendo does not know the one of this system")
        self._pid = target.pid
        self._root: psutil.Process | None = None
        self._last: dict[psutil.Process, dict[str, float]] = {}
        self._ended = dict.fromkeys(_COUNTERS, 0.0)
        self._before: tuple[float, float] | None = None  # time and CPU seconds of the last inspection

    def inspect(self) -> Inspection:
        try:
            if self._root is None:
                self._root = psutil.Process(self._pid)
            if not self._root.is_running():  # compares start times: the pid may be another process by now
                raise PeerError(f"process {self._pid} has ended")
            found = {process: _measured(process) for process in (self._root, *self._root.children(recursive=True))}
        except psutil.NoSuchProcess as err:
            raise PeerError(f"process {self._pid} does not exist") from err
        except psutil.AccessDenied as err:
            raise PeerError(f"process {self._pid} belongs to another user, and access is denied") from err
        now_s = time.monotonic()
        if not found[self._root]:
            raise PeerError(f"process {self._pid} has ended")
        inspection = Inspection()
        self._add_tree(inspection, {process: values for process, values in found.items() if values}, now_s)
        if len(found) > 1:
            for process, values in found.items():
                inspection.readings.extend(
                    Reading(f"{TREE}/{process.pid}", name, value) for name, value in values.items()
                )
        for process in found:
            _add_texts(inspection, process, f"{TREE}/{process.pid}" if len(found) > 1 else TREE)
        _add_interfaces(inspection, self._pid)
        return inspection

    def close(self) -> None:
        """Nothing to close."""

    def _add_tree(self, inspection: Inspection, found: dict[psutil.Process, dict[str, float]], now_s: float) -> None:
        for process, values in self._last.items():
            if process not in found:
                for name in _COUNTERS:
                    self._ended[name] += values.get(name, 0.0)
        self._last = found
        totals: dict[str, float] = {}
        for values in found.values():
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + value
        for name, value in self._ended.items():
            if name in totals:
                totals[name] += value
        totals["processes"] = float(len(found))
        inspection.readings.extend(Reading(TREE, name, value) for name, value in totals.items())
        before, self._before = self._before, (now_s, totals["cpu_seconds"])
        if before is not None and now_s > before[0]:
            inspection.readings.append(
                Reading(TREE, "cpu_cores", (totals["cpu_seconds"] - before[1]) / (now_s - before[0]))
            )


def _measured(process: psutil.Process) -> dict[str, float]:
    """The values of one process; empty when it has ended or is a zombie."""
    values: dict[str, float] = {}
    try:
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return {}
            cpu = process.cpu_times()
            values["cpu_seconds"] = cpu.user + cpu.system
            memory = process.memory_info()
            values["rss_bytes"], values["virtual_bytes"] = memory.rss, memory.vms
            values["threads"] = process.num_threads()
            values["voluntary_switches"], values["involuntary_switches"] = _switches(process.pid)
            _permitted(lambda: values.update(descriptors=process.num_fds()))
            _permitted(lambda: values.update(zip(("read_bytes", "written_bytes"), _io_bytes(process), strict=True)))
    except psutil.NoSuchProcess:
        return {}
    return {name: float(value) for name, value in values.items()}


def _permitted(action: Callable[[], None]) -> None:
    """Descriptors and I/O are visible only to the owner and to root."""
    try:
        action()
    except psutil.AccessDenied:
        return


def _switches(pid: int) -> tuple[float, float]:
    """Context switches of all live threads: the process's own figure counts only its first thread."""
    sums = dict.fromkeys(_SWITCHES, 0)
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # this thread has just ended
        for line in lines[-len(_SWITCHES) :]:  # they are the last lines
            name, _, value = line.partition(":")
            if name in sums:
                sums[name] += int(value)
    return sums[_SWITCHES[0]], sums[_SWITCHES[1]]


def _io_bytes(process: psutil.Process) -> tuple[float, float]:
    # All bytes read and written, including page cache and sockets: disk I/O alone says little about a broker.
    counters = process.io_counters()
    return counters.read_chars, counters.write_chars


def _add_texts(inspection: Inspection, process: psutil.Process, entity: str) -> None:
    try:
        # Never the command line: it may contain secrets.
        inspection.texts[entity, "name"] = process.name()
        inspection.texts[entity, "status"] = process.status()
    except psutil.NoSuchProcess:
        return


def _add_interfaces(inspection: Inspection, pid: int) -> None:
    """The counters of the interfaces in the network namespace of this process."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii", errors="replace").splitlines()[2:]
    except OSError:
        return
    for line in lines:
        name, _, columns = line.partition(":")
        values = columns.split()
        for column, metric in _INTERFACE_COLUMNS.items():
            if column < len(values):
                inspection.readings.append(Reading(f"interface/{name.strip()}", metric, float(values[column])))
