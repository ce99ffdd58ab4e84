"""How does a caller follow a run, and how does it ask to stop?

Derive from RunObserver and override what is of interest. The conductor calls these methods between its own decisions,
so they must return soon.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.run.result import RunResult

if TYPE_CHECKING:
    from crescendo.pipeline.live.snapshot import Snapshot


class RunObserver:
    """Follows a run. Every method does nothing, and `interrupted` says no."""

    def progress(self, step: str) -> None:
        """A new step begins, in a few words: starting the broker, starting Spark, judging."""

    def on_started(self, run_dir: Path) -> None:
        """The directory of the recording exists."""

    def on_event(self, event: RecordEvent) -> None:
        """Something happened that the recording keeps, such as `start`, `lost` or `fault`."""

    def on_statistics(self, state: RunState) -> None:
        """About ten times a second: the state of the run, with what each peer reported last."""

    def on_live(self, snapshot: "Snapshot") -> None:
        """With live tables: their latest periods."""

    def on_warning(self, sentence: str) -> None:
        """Something does not work as wanted, and the run continues without it."""

    def on_recorded(self, result: RunResult) -> None:
        """The run is over and its recording is closed; the analysis, if any, comes next."""

    def on_trial(self, sentence: str) -> None:
        """One try of a search is judged: its number, rate and outcome."""

    def interrupted(self) -> bool:
        """Whether to stop now. Asked about twenty times a second, until the recording is closed."""
        return False


class ObserverGroup(RunObserver):
    """Several observers of one run; it stops when one of them says so."""

    def __init__(self, *observers: RunObserver) -> None:
        self._observers: Sequence[RunObserver] = observers

    def progress(self, step: str) -> None:
        for each in self._observers:
            each.progress(step)

    def on_started(self, run_dir: Path) -> None:
        for each in self._observers:
            each.on_started(run_dir)

    def on_event(self, event: RecordEvent) -> None:
        for each in self._observers:
            each.on_event(event)

    def on_statistics(self, state: RunState) -> None:
        for each in self._observers:
            each.on_statistics(state)

    def on_live(self, snapshot: "Snapshot") -> None:
        for each in self._observers:
            each.on_live(snapshot)

    def on_warning(self, sentence: str) -> None:
        for each in self._observers:
            each.on_warning(sentence)

    def on_recorded(self, result: RunResult) -> None:
        for each in self._observers:
            each.on_recorded(result)

    def on_trial(self, sentence: str) -> None:
        for each in self._observers:
            each.on_trial(sentence)

    def interrupted(self) -> bool:
        return any(each.interrupted() for each in self._observers)
