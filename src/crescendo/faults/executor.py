"""How do faults begin and end on time?

A moment before a fault is due, a thread prepares it and tells the guardian its cure; then it waits for the due time,
acts, waits for the length of the fault and undoes it. What happened, and when, is a list of events. The threads live
until `end_threads`, because a process that one of them started dies with it. Decides nothing about the run.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

from msgspec import Struct

from crescendo.faults.action import Cure, FaultAction
from crescendo.faults.owed_cures import OwedCures
from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.model.fault_schedule import ScheduledFault

FAULT, CURE, FAULT_FAILED, CURE_FAILED = "fault", "cure", "fault failed", "cure failed"
"""Kinds of events."""

Targets = Mapping[str, Mapping[str, Any]]
"""Kind of target -> name -> target."""

LEAD_S = 0.5
_WATCH_S = 1.0
_FIRST_PROMISE = 10**6  # no run has as many faults


@dataclass(frozen=True)
class FaultEvent:
    """Something that happened to a target."""

    t_ns: int
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True)
class _Bound:
    """An occurrence with its action and target."""

    scheduled: ScheduledFault
    action: FaultAction[Any, Any]
    settings: Struct
    target: Any


class FaultExecutor:
    """Carries out the faults of one run."""

    def __init__(self, schedule: Sequence[tuple[ScheduledFault, FaultAction[Any, Any], Struct]]) -> None:
        self._schedule = schedule
        # One for each, because every one may last until the run ends; threads start when they are needed.
        self._pool = ThreadPoolExecutor(max(len(schedule), 1), thread_name_prefix="fault")
        self._over = threading.Event()
        self._happened: deque[FaultEvent] = deque()
        self._running: list[Future[None]] = []
        self._bound: list[_Bound] = []
        self._owed = OwedCures()
        self._timer: threading.Thread | None = None
        self._promises = count(_FIRST_PROMISE)
        self._passing: set[int] = set()  # faults that have begun and will end by themselves

    @property
    def is_passing(self) -> bool:
        """Whether a fault is active that will be undone before the run ends, or is being undone."""
        return bool(self._passing)

    @property
    def guardian_pid(self) -> int:
        return self._owed.guardian_pid

    def owe(self, cure: Cure) -> Callable[[], None]:
        """Promise a cure for the whole run; returns what takes the promise back."""
        number = next(self._promises)
        self._owed.owe(number, cure)
        return lambda: self._owed.settle(number)

    def aim(self, targets: Targets) -> None:
        """Find the target of every fault; ConfigError if there is none."""
        for scheduled, action, settings in self._schedule:
            known = targets.get(action.acts_on, {})
            if scheduled.planned.on not in known:
                raise ConfigError(f"faults: {action.name} finds no {action.acts_on} called {scheduled.planned.on!r}")
            self._bound.append(_Bound(scheduled, action, settings, known[scheduled.planned.on]))

    def arm(self, t0_ns: int) -> None:
        """The run begins at this monotonic time."""
        self._timer = threading.Thread(target=self._submit_when_due, args=(t0_ns,), name="faults", daemon=True)
        self._timer.start()

    def take_events(self) -> list[FaultEvent]:
        """What happened since the last call."""
        return [self._happened.popleft() for _ in range(len(self._happened))]

    def close(self) -> None:
        """Cause no more faults and undo those that are active. Safe to call twice."""
        self._over.set()
        if self._timer is not None:
            self._timer.join()
        for future in self._running:
            future.result()

    def end_threads(self) -> None:
        """When the targets are gone."""
        self.close()
        self._pool.shutdown()
        self._owed.close()

    def _submit_when_due(self, t0_ns: int) -> None:
        for bound in self._bound:
            due_ns = t0_ns + bound.scheduled.offset_ns
            while not self._over.wait(min(max((due_ns - time.monotonic_ns()) / 1e9 - LEAD_S, 0), _WATCH_S)):
                self._owed.watch()
                if due_ns - time.monotonic_ns() <= LEAD_S * 1e9:
                    break
            if self._over.is_set():
                return
            self._running.append(self._pool.submit(self._carry_out, bound, due_ns))
        while not self._over.wait(_WATCH_S):
            self._owed.watch()

    def _carry_out(self, bound: _Bound, due_ns: int) -> None:
        planned, number, action = bound.scheduled.planned, bound.scheduled.number, bound.action
        detail: dict[str, Any] = {"fault": number, "do": planned.do, "on": planned.on, "planned_ns": due_ns}
        if planned.lasts is not None:
            detail["for_ns"] = int(planned.lasts)
        began_ns, cure = time.monotonic_ns(), None
        try:
            cure = action.prepare(bound.target, bound.settings)
            if cure is not None:
                self._owed.owe(number, cure)
            if self._over.wait(max(due_ns - time.monotonic_ns(), 0) / 1e9):
                self._owed.settle(number)
                return
            if planned.lasts is not None or action.is_instant(bound.settings):
                self._passing.add(number)
            began_ns = time.monotonic_ns()
            means = action.apply(bound.target, bound.settings, cure)
        except (CrescendoError, OSError) as err:
            self._note(began_ns, FAULT_FAILED, detail | {"reason": str(err)})
            self._undo(bound, cure, None)  # it may have happened in part
            return
        done_ns = time.monotonic_ns()
        self._note(began_ns, FAULT, detail | {"done_ns": done_ns} | ({"means": means} if means else {}))
        if planned.lasts is not None:
            self._over.wait(max(began_ns + planned.lasts - done_ns, 0) / 1e9)
        elif action.is_instant(bound.settings):
            self._over.wait(action.own_length_s(bound.target, bound.settings))
        else:
            self._over.wait()
        self._undo(bound, cure, detail)

    def _undo(self, bound: _Bound, cure: Cure | None, detail: dict[str, Any] | None) -> None:
        """Undo a fault and note it; without a detail, a fault that failed, which is not noted."""
        final, began_ns = self._over.is_set() or detail is None, time.monotonic_ns()
        kind = CURE
        more: dict[str, Any] = {"began_ns": began_ns, "final": final}
        try:
            bound.action.end(bound.target, bound.settings, cure, final=final)
        except (CrescendoError, OSError) as err:
            # The guardian tries again when the run is over.
            if not self._over.is_set():
                kind, more = CURE_FAILED, more | {"reason": str(err)}
        else:
            self._owed.settle(bound.scheduled.number)
        if detail is not None:
            self._note(time.monotonic_ns(), kind, detail | more)
        self._passing.discard(bound.scheduled.number)

    def _note(self, t_ns: int, kind: str, detail: dict[str, Any]) -> None:
        self._happened.append(FaultEvent(t_ns, kind, detail))
