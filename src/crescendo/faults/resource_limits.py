"""How does a node get too little processor time, memory or file descriptors?

Processor time and memory by a control group. Where the kernel offers none to us, a stated substitute: its processes run
and pause in turn, or their address space is limited. Descriptors by the soft limit of each process. The event of the
fault says which means it was.
"""

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path
from typing import Annotated

import psutil
from msgspec import Meta, Struct

from crescendo.faults import cures
from crescendo.faults.action import Cure, FaultAction, FaultNode, Length
from crescendo.faults.control_groups import Hierarchy, cpu_files, hierarchy_of, make_group, memory_files, new_group
from crescendo.model.errors import PeerError
from crescendo.model.units import Size
from crescendo.processes.ending import processes_with
from crescendo.processes.ref import process_ref

_TURN_S = 0.1
_LEAST_BYTES = 4 * 2**20
_GROUP, _LIMITS = cures.remove_group.__name__, cures.restore_limits.__name__
_CONTINUE = cures.continue_processes.__name__


class CpuSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How much processor time is left."""

    share: Annotated[float, Meta(gt=0, le=1000)] = 0.1  # of one core


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How much memory the node may have."""

    limit: Size

    def __post_init__(self) -> None:
        if self.limit < _LEAST_BYTES:
            raise ValueError("limit must be at least 4MiB")


class DescriptorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How many files and sockets each process may have open."""

    limit: Annotated[int, Meta(ge=0, le=1_000_000)]


class Starve(FaultAction[FaultNode, CpuSettings]):
    """Limits the processor time of a node."""

    name = "cpu"
    summary = "the node gets `share` of one core (default 0.1)"
    settings = CpuSettings
    length = Length.OPTIONAL

    def __init__(self, *, may_group: bool = True) -> None:
        self._may_group = may_group
        self._turns: dict[str, _Turns] = {}  # by token

    def prepare(self, target: FaultNode, settings: CpuSettings) -> Cure:
        return _group_cure("cpu", target, may_group=self._may_group) or _cure(_CONTINUE, {"token": target.token})

    def apply(self, target: FaultNode, settings: CpuSettings, cure: Cure | None) -> str:
        hierarchy = hierarchy_of("cpu")
        if cure is None or hierarchy is None or "path" not in cure.arguments:
            self._turns[target.token] = _Turns(target, settings.share)
            return f"substitute: it runs {min(settings.share, 1):.0%} of the time, in turns"
        return _limit(cure, hierarchy, "cpu", cpu_files(hierarchy, settings.share), target)

    def end(self, target: FaultNode, settings: CpuSettings, cure: Cure | None, *, final: bool) -> None:
        if (turns := self._turns.pop(target.token, None)) is not None:
            turns.close()
        super().end(target, settings, cure, final=final)


class LimitMemory(FaultAction[FaultNode, MemorySettings]):
    """Limits the memory of a node."""

    name = "memory"
    summary = "the node may have `limit` of memory; the kernel kills what needs more"
    settings = MemorySettings
    length = Length.OPTIONAL

    def __init__(self, *, may_group: bool = True) -> None:
        self._may_group = may_group

    def prepare(self, target: FaultNode, settings: MemorySettings) -> Cure:
        return _group_cure("memory", target, may_group=self._may_group) or _limits_cure(resource.RLIMIT_AS, target)

    def apply(self, target: FaultNode, settings: MemorySettings, cure: Cure | None) -> str:
        hierarchy = hierarchy_of("memory")
        if cure is None or hierarchy is None or "path" not in cure.arguments:
            _set_soft_limit(resource.RLIMIT_AS, int(settings.limit), cure)
            return "substitute: the address space of its processes is limited (RLIMIT_AS)"
        return _limit(cure, hierarchy, "memory", memory_files(hierarchy, int(settings.limit)), target)


class LimitDescriptors(FaultAction[FaultNode, DescriptorSettings]):
    """Limits the open files of a node."""

    name = "descriptors"
    summary = "each process of the node may open no descriptor above `limit`"
    settings = DescriptorSettings
    length = Length.OPTIONAL

    def prepare(self, target: FaultNode, settings: DescriptorSettings) -> Cure:
        return _limits_cure(resource.RLIMIT_NOFILE, target)

    def apply(self, target: FaultNode, settings: DescriptorSettings, cure: Cure | None) -> str:
        _set_soft_limit(resource.RLIMIT_NOFILE, settings.limit, cure)
        return "soft limit (prlimit)"


def _group_cure(controller: str, target: FaultNode, *, may_group: bool) -> Cure | None:
    hierarchy = hierarchy_of(controller) if may_group else None
    if hierarchy is None:
        return None
    group, home = new_group(hierarchy, controller, target.main_process.pid)
    return _cure(_GROUP, {"path": str(group), "home": str(home)})


def _limit(cure: Cure, hierarchy: Hierarchy, controller: str, files: dict[str, str], target: FaultNode) -> str:
    pids = [process.pid for process in processes_with(target.token)]
    try:
        make_group(Path(cure.arguments["path"]), hierarchy, controller, files, pids)
    except OSError as err:
        raise PeerError(f"the kernel refuses the control group: {err}") from err
    return f"control group, version {hierarchy.version}"


def _limits_cure(limit: int, target: FaultNode) -> Cure:
    known = []
    for process in processes_with(target.token):
        with contextlib.suppress(OSError):
            ref = process_ref(target.name, process.pid)
            known.append((ref.name, ref.pid, ref.birth, resource.prlimit(ref.pid, limit)[0]))
    return _cure(_LIMITS, {"limit": limit, "processes": known})


def _set_soft_limit(limit: int, value: int, cure: Cure | None) -> None:
    for _, pid, _, _ in cure.arguments["processes"] if cure is not None else ():
        try:
            hard = resource.prlimit(pid, limit)[1]
            resource.prlimit(pid, limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
        except ProcessLookupError:
            continue
        except (OSError, ValueError) as err:
            raise PeerError(f"the kernel refuses the limit of process {pid}: {err}") from err


def _cure(function: str, arguments: dict[str, object]) -> Cure:
    return Cure(f"{cures.__name__}:{function}", arguments)


class _Turns:
    """Lets the processes of a node run and pause in turn."""

    def __init__(self, target: FaultNode, share: float) -> None:
        self._processes = processes_with(target.token)
        self._share = min(share, 1.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take_turns, name="turns", daemon=True)
        self._thread.start()

    def _take_turns(self) -> None:
        while not self._over.is_set():
            self._signal(signal.SIGSTOP)
            self._over.wait(_TURN_S * (1 - self._share))
            self._signal(signal.SIGCONT)
            self._over.wait(_TURN_S * self._share)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if process.is_running():
                    os.kill(process.pid, number)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


CPU, MEMORY, DESCRIPTORS = Starve(), LimitMemory(), LimitDescriptors()
