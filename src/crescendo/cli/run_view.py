"""How does the command line show a run or a search, and which exit code does it end with?

Calls `run.session` and prints: progress, statistics and warnings to stderr, the verdict to stdout.
"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console

from crescendo.cli.live_view import LiveView
from crescendo.cli.search import exit_code, search_line
from crescendo.cli.terminal import EXIT_CODES, Progress, can_ask, confirms, print_verdict
from crescendo.cli.watch import lines_of
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.leftovers import leftovers_sentence
from crescendo.model.measurable import check_planned
from crescendo.model.verdict import Outcome
from crescendo.pipeline.live.snapshot import Snapshot
from crescendo.record.manifest import read_manifest
from crescendo.record.run_links import link_run
from crescendo.run import session
from crescendo.run.analysis import Analyst
from crescendo.run.control_access import ControlAccess
from crescendo.run.interruption import Interruption
from crescendo.run.observer import ObserverGroup, RunObserver
from crescendo.run.result import RunResult


class TerminalObserver(RunObserver):
    """Shows runs in the terminal, one after another. Use as a context manager."""

    def __init__(self, trials: Console | None = None) -> None:
        self._progress = Progress()
        self._trials = trials
        self._shown = ExitStack()  # what must be removed from the terminal again
        self._view: LiveView | None = None
        self._warned = False

    def progress(self, step: str) -> None:
        self._progress(step)

    def on_event(self, event: RecordEvent) -> None:
        if event.kind == "start":
            self._progress.pause()
        elif event.kind == "lost":
            self.on_warning(f"lost {event.detail['peer']}: {event.detail['reason']}; the run can no longer pass")

    def on_statistics(self, state: RunState) -> None:
        self._live_view()(state)
        self._warn_of_others(state)

    def _warn_of_others(self, state: RunState) -> None:
        """Say once that messages of others are in the way: the verdict cannot be a pass any more."""
        if self._warned:
            return
        for peer in state.of("receiver"):
            measured = None if peer.statistics is None else peer.statistics.values
            if measured is not None and (measured.held_before or measured.strays):
                self._warned = True
                self.on_warning(
                    f"{peer.plan.id}: messages of others are in the way, so rate, latency and losses cannot be judged; "
                    "purge: true empties a destination first, {run} in its address gives each run its own"
                )
                return

    def on_live(self, snapshot: Snapshot) -> None:
        for line in lines_of(snapshot):
            self._live_view().print_line(line)

    def on_warning(self, sentence: str) -> None:
        self._live_view().print_line(sentence)

    def on_recorded(self, result: RunResult) -> None:
        self._warned = False
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
    control: ControlAccess | None = None,
    master: str | None = None,
    live: bool = False,
    start_spark_first: bool = True,
    durable: bool = True,
    metrics: int | None = None,
    as_json: bool = False,
) -> int:
    check_planned(experiment, experiment.name)
    ask_before_purging(experiment)
    with Interruption() as interruption, Analyst(master) as analyst:
        with TerminalObserver() as shown, with_metrics(shown, experiment.name, metrics) as observer:
            result = session.run(
                experiment,
                out=out,
                control=control,
                observer=observer,
                live=live,
                durable=durable,
                analyst=analyst,
                start_spark_first=start_spark_first,
                interruption=interruption,
                command=command,
            )
        link_run(result.run_dir, None if result.summary is None else result.summary.verdict.outcome)
        # Before Spark is shut down: the user need not wait for that.
        if result.summary is None:
            return _say_interrupted(result.run_dir)
        if as_json:
            print(msgspec.json.encode(result.summary).decode(), flush=True)
        else:
            print_verdict(result.summary)
            print(f"report  {result.report}", flush=True)
        _print_leftovers(experiment, result)
        return EXIT_CODES[result.summary.verdict.outcome]


def search_and_show(
    experiment: Experiment,
    command: list[str],
    out: Path,
    *,
    control: ControlAccess | None = None,
    master: str | None = None,
    durable: bool = True,
    metrics: int | None = None,
    as_json: bool = False,
) -> int:
    ask_before_purging(experiment)
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    with Interruption() as interruption, Analyst(master) as analyst:
        with TerminalObserver(console) as shown, with_metrics(shown, experiment.name, metrics) as observer:
            found = session.search(
                experiment,
                out=out,
                control=control,
                durable=durable,
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
            if found.report is not None:
                print(f"report  {found.report}", flush=True)
    return exit_code(found.result.answer)


@contextmanager
def with_metrics(observer: RunObserver, experiment: str, port: int | None) -> Iterator[RunObserver]:
    """The observer and, if a port was given, a server of the figures that it sees."""
    if port is None:
        yield observer
        return
    from crescendo.run.metrics_server import MetricsServer

    with MetricsServer(experiment, port) as server:
        print(f"metrics {server.url}", file=sys.stderr, flush=True)
        yield ObserverGroup(observer, server)


def ask_before_purging(experiment: Experiment) -> None:
    """On a terminal, let the user confirm that messages are deleted from a system that Crescendo did not start."""
    named = [
        group.target.node
        for group in experiment.workload
        if group.purge and group.receivers and group.name in experiment.foreign_groups
    ]
    if not named or not can_ask():
        return
    if not confirms(f"purge: this deletes every message in {', '.join(dict.fromkeys(named))}"):
        raise ConfigError("nothing was purged or sent; remove purge: true, or answer y")


def _print_leftovers(experiment: Experiment, result: RunResult) -> None:
    """What the run leaves in a system that was running before."""
    total = None if result.summary is None else result.summary.total
    missing = 0 if total is None else total.undelivered + total.lost
    if sentence := leftovers_sentence(experiment.for_run(f"{read_manifest(result.run_dir).tag:08x}"), missing):
        print(f"  {sentence}", file=sys.stderr, flush=True)


def _say_interrupted(run_dir: Path) -> int:
    print(f"VERDICT invalid · interrupted · the partial recording is kept in {run_dir}", flush=True)
    print(f"  to analyse it: crescendo analyze {shlex.quote(str(run_dir))}", file=sys.stderr)
    return EXIT_CODES[Outcome.INVALID]
