"""What does a process and everything it started cost this machine?

CPU, memory, threads, descriptors, context switches and I/O of the whole tree, and the traffic of the interfaces that
the process sees. What children used up before they ended stays in the sums, so that totals never run backwards. What
the kernel will not tell us about a process is left out.
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
"""Places in a line of /proc/PID/net/dev."""


class ProcessInspector:
    """Looks at one process tree of this machine."""

    def __init__(self, target: InspectionTarget) -> None:
        if target.pid is None:
            raise ConfigError("inspect: process needs a pid, because Crescendo does not know that of the system")
        self._pid = target.pid
        self._root: psutil.Process | None = None
        self._last: dict[psutil.Process, dict[str, float]] = {}
        self._ended = dict.fromkeys(_COUNTERS, 0.0)
        self._before: tuple[float, float] | None = None  # when we looked last, and the CPU seconds then

    def inspect(self) -> Inspection:
        try:
            if self._root is None:
                self._root = psutil.Process(self._pid)
            if not self._root.is_running():  # compares start times: the pid may be another process by now
                raise PeerError(f"process {self._pid} has ended")
            found = {process: _measured(process) for process in (self._root, *self._root.children(recursive=True))}
        except psutil.NoSuchProcess as err:
            raise PeerError(f"process {self._pid} is not there") from err
        except psutil.AccessDenied as err:
            raise PeerError(f"process {self._pid} belongs to somebody else, who does not let us look") from err
        now_s = time.monotonic()
        if not found[self._root]:
            raise PeerError(f"process {self._pid} has ended")
        look = Inspection()
        self._take_tree(look, {process: values for process, values in found.items() if values}, now_s)
        if len(found) > 1:
            for process, values in found.items():
                look.readings.extend(Reading(f"{TREE}/{process.pid}", name, value) for name, value in values.items())
        for process in found:
            _take_words(look, process, f"{TREE}/{process.pid}" if len(found) > 1 else TREE)
        _take_interfaces(look, self._pid)
        return look

    def close(self) -> None:
        """Nothing is held open."""

    def _take_tree(self, look: Inspection, found: dict[psutil.Process, dict[str, float]], now_s: float) -> None:
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
        look.readings.extend(Reading(TREE, name, value) for name, value in totals.items())
        before, self._before = self._before, (now_s, totals["cpu_seconds"])
        if before is not None and now_s > before[0]:
            look.readings.append(Reading(TREE, "cpu_cores", (totals["cpu_seconds"] - before[1]) / (now_s - before[0])))


def _measured(process: psutil.Process) -> dict[str, float]:
    """What can be known about one process; nothing when it has ended or waits to be buried."""
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
    """Descriptors and I/O are shown only to the owner and to root."""
    try:
        action()
    except psutil.AccessDenied:
        return


def _switches(pid: int) -> tuple[float, float]:
    """Context switches of all threads that live: the process's own figure is that of its first thread alone."""
    sums = dict.fromkeys(_SWITCHES, 0)
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        try:
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # this thread has ended meanwhile
        for line in lines[-len(_SWITCHES) :]:  # they stand at the end
            name, _, value = line.partition(":")
            if name in sums:
                sums[name] += int(value)
    return sums[_SWITCHES[0]], sums[_SWITCHES[1]]


def _io_bytes(process: psutil.Process) -> tuple[float, float]:
    # All that was read and written, page cache and sockets included: what reached the disk says little about a broker.
    counters = process.io_counters()
    return counters.read_chars, counters.write_chars


def _take_words(look: Inspection, process: psutil.Process, entity: str) -> None:
    try:
        # Never the command line: it may hold secrets.
        look.texts[entity, "name"] = process.name()
        look.texts[entity, "status"] = process.status()
    except psutil.NoSuchProcess:
        return


def _take_interfaces(look: Inspection, pid: int) -> None:
    """The counters of the interfaces in the network namespace of this process."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii", errors="replace").splitlines()[2:]
    except OSError:
        return
    for line in lines:
        name, _, columns = line.partition(":")
        values = columns.split()
        for place, metric in _INTERFACE_COLUMNS.items():
            if place < len(values):
                look.readings.append(Reading(f"interface/{name.strip()}", metric, float(values[place])))
