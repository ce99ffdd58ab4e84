"""Does everything that `crescendo run EXPERIMENT --out DIR` does before the analysis, and nothing after.

For tests of a run in progress: they need a process that they can kill and inspect, and that has no JVM of its own. With
`--phases` it also prints to standard error what the conductor is doing, when that changes, and whom it has lost.
"""

import sys
import time
from pathlib import Path

import crescendo
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.run.live_sample import sample


class Steps(crescendo.RunObserver):
    def progress(self, step: str) -> None:
        print(step, file=sys.stderr)


class Phases(Steps):
    def __init__(self) -> None:
        self._phase = ""

    def on_statistics(self, state: RunState) -> None:
        phase = sample(state, time.monotonic_ns())["phase"]
        if phase != self._phase:
            self._phase = phase
            print(f"phase: {phase}", file=sys.stderr, flush=True)

    def on_event(self, event: RecordEvent) -> None:
        if event.kind == "lost":
            print(f"lost: {event.detail['peer'].partition('-')[0]}", file=sys.stderr, flush=True)


def main(path: Path, out: Path, *options: str) -> None:
    command = ["crescendo", "run", str(path)]
    with crescendo.Interruption() as interruption:
        result = crescendo.run(
            path,
            out=out,
            command=command,
            observer=Phases() if "--phases" in options else Steps(),
            analyze=False,
            interruption=interruption,
        )
    print(result.state.value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
