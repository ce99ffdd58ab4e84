"""A real system as a target of faults, and what the kernel says about its processes."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from crescendo.faults.action import FaultAction
from crescendo.faults.executor import FaultEvent, FaultExecutor
from crescendo.faults.registry import action_of
from crescendo.model.experiment_file import experiment_from
from crescendo.model.fault_schedule import ScheduledFault, fault_schedule
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.fault_control import NodeUnderFaults
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

GROUPS = Path("/sys/fs/cgroup")
_SEEN: WeakKeyDictionary[FaultExecutor, list[FaultEvent]] = WeakKeyDictionary()


@contextlib.contextmanager
def running_node(directory: Path) -> Iterator[NodeUnderFaults]:
    instance = start(system_of("loopback"), {}, directory=directory, on_fork=die_with_parent(), stop_grace_s=2)
    try:
        yield NodeUnderFaults("system", instance)
    finally:
        instance.stop()


def scheduled(*faults: dict[str, Any]) -> list[tuple[ScheduledFault, FaultAction[Any, Any], Struct]]:
    experiment = experiment_from({"phases": {"warmup": 0, "measure": "1m"}, "faults": list(faults)}, default_name="x")
    found = []
    for each in fault_schedule(experiment):
        action = action_of(each.planned.do)
        found.append((each, action, action.settings_of(each.planned.settings)))
    return found


@contextlib.contextmanager
def executing(node: NodeUnderFaults, *faults: dict[str, Any]) -> Iterator[FaultExecutor]:
    executor = FaultExecutor(scheduled(*faults))
    try:
        executor.aim({"node": {node.name: node}})
        executor.arm(time.monotonic_ns())
        yield executor
    finally:
        executor.close()
        executor.end_threads()


def events_of(executor: FaultExecutor, kind: str, wanted: int = 1, timeout_s: float = 30) -> list[FaultEvent]:
    """Wait for this number of events of a kind, of all that this executor has reported."""
    found: list[FaultEvent] = []
    seen = _SEEN.setdefault(executor, [])

    def are_there() -> bool:
        seen.extend(executor.take_events())
        found[:] = [event for event in seen if event.kind == kind]
        return len(found) >= wanted

    assert within(timeout_s, are_there), f"no {kind} in {seen}"
    return found


def state_of(pid: int) -> str:
    """The state of a process as the kernel writes it: T is stopped by a signal; empty if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def left_groups(owner: int) -> list[Path]:
    """The control groups that this process made."""
    # os.walk passes over directories that others remove meanwhile; glob raises.
    return [
        Path(top, name) for top, names, _ in os.walk(GROUPS) for name in names if name.startswith(f"crescendo-{owner}-")
    ]


def mounts_below(directory: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True
