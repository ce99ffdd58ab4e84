"""How does a run show live tables of itself?

A watcher process computes them; this starts it before the first message is due, sends it the path of the recording, and
passes its snapshots to the observer. If the watcher fails, the run continues without it. Prints nothing.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from crescendo.control.conductor.state import RunState, Stage
from crescendo.pipeline.live.snapshot import Snapshot
from crescendo.pipeline.live.watcher_process import WatcherProcess
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.observer import RunObserver

_LAST_PARTS_S = 120.0
_FOLLOWED = (Stage.RUNNING, Stage.DRAINING, Stage.STOPPING)


class LiveTables(RunObserver):
    """The live tables of one run, which this observes itself. Use as a context manager."""

    def __init__(self, observer: RunObserver) -> None:
        self._run_dir: Path | None = None  # once it exists
        self._observer = observer
        self._watcher: WatcherProcess | None = WatcherProcess(die_with_parent())

    def start(self) -> None:
        if self._watcher is not None:
            self._watcher.start()

    def wait(self, interrupted: Callable[[], bool]) -> None:
        """Block until the watcher is ready or has failed, or the user interrupts."""
        self._observer.progress("warming up Spark for the live tables")
        if self._watcher is not None:
            self._watcher.wait_until_ready(interrupted)

    def on_started(self, run_dir: Path) -> None:
        self._run_dir = run_dir.resolve()

    def on_statistics(self, state: RunState) -> None:
        if self._watcher is not None and self._run_dir is not None and state.stage in _FOLLOWED:
            self._watcher.send_run_dir(self._run_dir)
            self._pass_on(0.0)

    def finish(self, interrupted: Callable[[], bool]) -> None:
        """The run has ended: pass on what its last parts add."""
        waited_s = 0.0
        while self._watcher is not None and waited_s < _LAST_PARTS_S and not interrupted():
            self._pass_on(0.2)
            waited_s += 0.2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        if self._watcher is not None:
            self._watcher.stop()

    def _pass_on(self, wait_s: float) -> None:
        if self._watcher is None:
            return
        found = self._watcher.lines(wait_s)
        for line in found or ():
            self._observer.on_live(msgspec.json.decode(line, type=Snapshot))
        if found is None:
            if complaint := self._watcher.failure():
                self._observer.on_warning(f"the live tables ended: {complaint}")
            self._watcher.stop()
            self._watcher = None
