"""When did the loop of an engine not turn, and can the kernel tell why?

Whatever stops this process shows here: a signal, other processes on its cores, a page that had to be read from disk, a
recorder that waits for the disk, too much work in one pass. A stall is time beyond what the loop meant to wait. Each is
an event, up to a number per second; the others of that second are one event with their number and sum.
"""

import os
import resource
from collections.abc import Callable

STALL_NS = 1_000_000
"""A loop that is late by more than this has stalled."""

LONG_STALL_NS = 10 * STALL_NS
STALL = "stall"
MAX_EVENTS_PER_S = 10
"""Beyond this, only long stalls have an event each."""

_SECOND_NS = 1_000_000_000
_STEAL_COLUMN = 8  # of the line "cpu" in /proc/stat: user nice system idle iowait irq softirq steal
_NS_PER_TICK = _SECOND_NS // os.sysconf("SC_CLK_TCK")


class StallLog:
    """The stalls of one loop."""

    def __init__(self, event: Callable[[str, dict[str, object]], None]) -> None:
        self.total_ns = 0
        self._event = event
        self._second_ns = 0  # when the current second began
        self._events = 0  # in the current second
        self._unreported: list[tuple[int, int]] = []  # duration, begin
        self._steal_ns, self._major_faults = steal_ns(), major_faults()

    def add(self, now_ns: int, duration_ns: int) -> None:
        """The loop turns again now."""
        self.total_ns += duration_ns
        is_same_second = now_ns - self._second_ns < _SECOND_NS
        if is_same_second and self._events >= MAX_EVENTS_PER_S and duration_ns < LONG_STALL_NS:
            self._unreported.append((duration_ns, now_ns - duration_ns))
            return
        # Before the tick, which may be overdue because of this stall: what the kernel tells is about this one.
        self._report(now_ns - duration_ns, duration_ns, {})
        self.tick(now_ns)
        self._events += 1

    def tick(self, now_ns: int) -> None:
        """Report what the last second left. Call about once a second."""
        if now_ns - self._second_ns < _SECOND_NS:
            return
        self._second_ns, self._events = now_ns, 0
        if self._unreported:
            durations_ns = [duration_ns for duration_ns, _ in self._unreported]
            longest_ns, from_ns = max(self._unreported)
            self._unreported.clear()
            self._report(from_ns, longest_ns, {"count": len(durations_ns), "total_ns": sum(durations_ns)})
        else:  # so that what the next stall finds is at most a second old
            self._steal_ns, self._major_faults = steal_ns(), major_faults()

    def close(self) -> None:
        """Report what is left."""
        self.tick(self._second_ns + _SECOND_NS)

    def _report(self, from_ns: int, duration_ns: int, more: dict[str, object]) -> None:
        """What the kernel tells is about the time since the last stall, or at most a second more than this one."""
        steal, faults = steal_ns(), major_faults()
        detail: dict[str, object] = {
            "from_ns": from_ns,
            "duration_ns": duration_ns,
            "steal_ns": steal - self._steal_ns,
            "major_faults": faults - self._major_faults,
        }
        self._steal_ns, self._major_faults = steal, faults
        self._event(STALL, detail | more)


def steal_ns() -> int:
    """CPU time that the hypervisor gave to others since this machine started; 0 where /proc does not say."""
    try:
        with open("/proc/stat", "rb", buffering=0) as stat:
            fields = stat.read(256).split(None, _STEAL_COLUMN + 1)
        return int(fields[_STEAL_COLUMN]) * _NS_PER_TICK
    except (OSError, IndexError, ValueError):
        return 0


def major_faults() -> int:
    """Pages that this process had to wait for."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
