"""Which steps does a run take, and how far has it come?

The steps that a person knows from doing it by hand: provision machines, build a release, copy it, start, watch,
collect, judge. What is printed during a step is its log: it remembers where in the output of the run process it began.
A step that had nothing to do is skipped. Starts nothing itself.
"""

import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

PROVISION, BUILD, COPY, START, WATCH, COLLECT, JUDGE = (
    "provision", "build", "copy", "start", "watch", "collect", "judge",
)  # fmt: skip
HERE_STEPS = (START, WATCH, COLLECT, JUDGE)
CLUSTER_STEPS = (PROVISION, BUILD, COPY, *HERE_STEPS)
_OF_CLUSTER = {
    "provision": PROVISION, "release": BUILD, "looking": COPY, "packing": COPY, "installing": COPY, "starting": START,
    "checking": START,
}  # fmt: skip
"""The first word of what `bring_up` says -> the step that begins there."""


def steps_of(cluster: object) -> tuple[str, ...]:
    """The steps of a run on a cluster, or here."""
    return CLUSTER_STEPS if cluster else HERE_STEPS


class StepState(StrEnum):
    """Where a step is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class RunStep(Struct):
    """One step: when it began and ended (wall clock), and where its log lies in the output."""

    name: str
    state: StepState = StepState.WAITING
    began_ns: int = 0
    ended_ns: int = 0
    log_from: int = 0
    log_to: int = 0


class RunSteps:
    """The steps of one run, in order. Only the present one runs."""

    def __init__(self, names: tuple[str, ...], output: Path) -> None:
        self._steps = [RunStep(name) for name in names]
        self._output = output
        self._at = -1

    @property
    def document(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.to_builtins(self._steps)
        return found

    def restart(self) -> None:
        """Another run takes the same steps."""
        self._steps = [RunStep(step.name) for step in self._steps]
        self._at = -1

    def begin(self, name: str) -> bool:
        """This step runs now; those before it that never did are skipped. False if it does already, or is over."""
        wanted = next((at for at, step in enumerate(self._steps) if step.name == name), -1)
        if wanted <= self._at:
            return False
        self._end(StepState.DONE)
        for step in self._steps[self._at + 1 : wanted]:
            step.state = StepState.SKIPPED
        self._at = wanted
        step = self._steps[wanted]
        step.state, step.began_ns, step.log_from = StepState.RUNNING, time.time_ns(), self._size()
        return True

    def begin_for(self, sentence: str) -> bool:
        """The step that a sentence of a cluster belongs to."""
        return self.begin(_OF_CLUSTER.get(sentence.partition(" ")[0].rstrip(":"), ""))

    def finish(self, *, failed: bool) -> None:
        """Nothing follows; what has not begun never will."""
        self._end(StepState.FAILED if failed else StepState.DONE)
        self._at = len(self._steps)

    def _end(self, state: StepState) -> None:
        if 0 <= self._at < len(self._steps):
            step = self._steps[self._at]
            step.state, step.ended_ns, step.log_to = state, time.time_ns(), self._size()

    def _size(self) -> int:
        try:
            return self._output.stat().st_size
        except OSError:
            return 0
