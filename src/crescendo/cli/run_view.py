"""How does the command line show a run or a search, and which exit code does it end with?

Calls `run.session` and prints: progress, statistics and warnings to stderr, the verdict to stdout.
"""

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console

from crescendo.cli.live_view import LiveView
from crescendo.cli.search import exit_code, search_line
from crescendo.cli.terminal import EXIT_CODES, Progress, print_verdict
from crescendo.cli.watch import lines_of
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.model.experiment import Experiment
from crescendo.model.verdict import Outcome
from crescendo.pipeline.live.snapshot import Snapshot
from crescendo.run import session
from crescendo.run.analysis import Analyst
from crescendo.run.interruption import Interruption
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult


class TerminalObserver(RunObserver):
    """Shows runs in the terminal, one after another. Use as a context manager."""

    def __init__(self, trials: Console | None = None) -> None:
        self._progress = Progress()
        self._trials = trials
        self._shown = ExitStack()  # what must be removed from the terminal again
        self._view: LiveView | None = None

    def progress(self, step: str) -> None:
        self._progress(step)

    def on_event(self, event: RecordEvent) -> None:
        if event.kind == "start":
            self._progress.pause()
        elif event.kind == "lost":
            self.on_warning(f"lost {event.detail['peer']}: {event.detail['reason']}; the run can no longer pass")

    def on_statistics(self, state: RunState) -> None:
        self._live_view()(state)

    def on_live(self, snapshot: Snapshot) -> None:
        for line in lines_of(snapshot):
            self._live_view().say(line)

    def on_warning(self, sentence: str) -> None:
        self._live_view().say(sentence)

    def on_recorded(self, result: RunResult) -> None:
        self._clear()

    def on_trial(self, sentence: str) -> None:
        self._progress.pause()
        if self._trials is not None:
            self._trials.print(f"  {sentence}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self._clear()

    def _live_view(self) -> LiveView:
        if self._view is None:
            self._view = self._shown.enter_context(LiveView())
        return self._view

    def _clear(self) -> None:
        self._progress.pause()
        self._shown.close()
        self._view = None


def run_and_show(
    experiment: Experiment,
    command: list[str],
    out: Path,
    *,
    control: str | None = None,
    master: str | None = None,
    live: bool = False,
    as_json: bool = False,
) -> int:
    with Interruption() as interruption, Analyst(master) as analyst:
        with TerminalObserver() as observer:
            result = session.run(
                experiment,
                out=out,
                control=control,
                observer=observer,
                live=live,
                analyst=analyst,
                interruption=interruption,
                command=command,
            )
        # Before Spark is shut down: the user need not wait for that.
        if result.summary is None:
            return _say_interrupted(result.run_dir)
        if as_json:
            print(msgspec.json.encode(result.summary).decode(), flush=True)
        else:
            print_verdict(result.summary)
            print(f"report  {result.report}", flush=True)
        return EXIT_CODES[result.summary.verdict.outcome]


def search_and_show(
    experiment: Experiment,
    command: list[str],
    out: Path,
    *,
    control: str | None = None,
    master: str | None = None,
    as_json: bool = False,
) -> int:
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    with Interruption() as interruption, Analyst(master) as analyst:
        with TerminalObserver(console) as observer:
            found = session.search(
                experiment,
                out=out,
                control=control,
                observer=observer,
                analyst=analyst,
                interruption=interruption,
                command=command,
            )
        if as_json:
            print(msgspec.json.encode(found.result).decode(), flush=True)
        else:
            print(search_line(found.result), flush=True)
            print(f"tries   {found.path}", flush=True)
    return exit_code(found.result.answer)


def _say_interrupted(run_dir: Path) -> int:
    print(f"VERDICT invalid · interrupted · the partial recording is kept in {run_dir}", flush=True)
    print(f"  to analyse it: crescendo analyze {shlex.quote(str(run_dir))}", file=sys.stderr)
    return EXIT_CODES[Outcome.INVALID]
