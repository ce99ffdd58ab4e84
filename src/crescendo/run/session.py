"""How does an experiment become a verdict and a report?

Runs it, analyses the recording, and writes the page; a search does that for every try. Prints nothing, handles no
signals unless it is given an `Interruption`, and leaves no process behind.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import load_experiment
from crescendo.model.schedule import expected_messages
from crescendo.record.manifest import State
from crescendo.record.search_result import SEARCH_FILE, SearchResult
from crescendo.record.summary import Summary
from crescendo.run.analysis import Analyst, opened_analyst
from crescendo.run.control_access import ControlAccess
from crescendo.run.execute import execute, new_run_dir
from crescendo.run.interruption import Interruption
from crescendo.run.live_tables import LiveTables
from crescendo.run.observer import ObserverGroup, RunObserver
from crescendo.run.result import RunResult
from crescendo.run.search import SearchTrial, run_search

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class FinishedSearch:
    """A search that has ended: its answer and tries, and the directory that keeps the recordings of all tries."""

    directory: Path
    result: SearchResult

    report: Path | None = None
    """Its page; None when there is nothing to show."""

    @property
    def path(self) -> Path:
        """The result as a file."""
        return self.directory / SEARCH_FILE


def run(
    experiment: Experiment | StrPath,
    *,
    out: StrPath = "runs",
    control: str | ControlAccess | None = None,
    observer: RunObserver | None = None,
    master: str | None = None,
    analyze: bool = True,
    report: bool = True,
    live: bool = False,
    durable: bool = True,
    analyst: Analyst | None = None,
    start_spark_first: bool = True,
    interruption: Interruption | None = None,
    command: Sequence[str] = (),
) -> RunResult:
    """Run an experiment, or the experiment in a file; analyse it; write the report.

    out: the recording goes to OUT/<name>-<time>/.
    control: the URL of an MQTT broker for control, instead of the embedded one; a ControlAccess for a lab's token.
    observer: follows the run and may stop it; derive one from RunObserver.
    master: a Spark master for the analysis; this machine by default.
    analyze, report: False leaves out the analysis, which needs Java, or only the page.
    live: compute live tables during the run, for the observer.
    durable: False does not wait for the disk: faster to seal, and not kept after a power cut.
    analyst: an Analyst to use and leave open, so that several runs share one Spark.
    start_spark_first: False sends the first message seconds sooner, and the verdict comes as much later.
    interruption: an entered Interruption; without one, signals are left alone.
    command: what the recording says about how it was made.

    Raises ConfigError when the caller must change something, LostError when nothing can be said. An interrupted run
    keeps its recording, which is not analysed; one that is interrupted before its first message has none, and raises
    KeyboardInterrupt.
    """
    experiment, observer = _experiment(experiment), observer or RunObserver()
    if experiment.search is not None:
        raise ConfigError(f"{experiment.name}: it has a search, which is many runs; call crescendo.search")
    analysing: AbstractContextManager[Analyst | None] = opened_analyst(analyst, master) if analyze else nullcontext()
    with analysing as opened:
        result = _record(
            experiment,
            out=Path(out),
            control=control,
            observer=observer,
            analyst=opened,
            interruption=interruption,
            live=live,
            prepare=start_spark_first,
            durable=durable,
            command=command,
        )
        if opened is None or result.state is State.INTERRUPTED:
            return result
        if interruption is not None:
            interruption.raise_at_once()
        try:
            return _judge(result, opened, observer, report)
        except KeyboardInterrupt:
            opened.close(at_once=True)
            if interruption is None:
                raise
            return result


def search(
    experiment: Experiment | StrPath,
    *,
    out: StrPath = "runs",
    control: str | ControlAccess | None = None,
    observer: RunObserver | None = None,
    master: str | None = None,
    durable: bool = True,
    analyst: Analyst | None = None,
    interruption: Interruption | None = None,
    command: Sequence[str] = (),
) -> FinishedSearch:
    """Find the highest rate that a system sustains: the `search` of an experiment. Arguments are those of `run`."""
    experiment, observer = _experiment(experiment), observer or RunObserver()
    with opened_analyst(analyst, master) as opened:
        directory = new_run_dir(Path(out), f"{experiment.name}-search")

        def run_trial(probe: Experiment, into: Path) -> SearchTrial | None:
            if _followed(observer, interruption).interrupted():
                return None
            result = _record(
                probe,
                out=into,
                control=control,
                observer=observer,
                analyst=opened,
                interruption=interruption,
                live=False,
                prepare=True,
                durable=durable,
                command=command,
            )
            if result.state is State.INTERRUPTED:
                return None
            judged = _judge(result, opened, observer, True)
            return None if judged.summary is None else SearchTrial(result.run_dir, judged.summary)

        try:
            result = run_search(experiment, directory, run_trial, observer.on_trial)
            return FinishedSearch(directory, result, _search_page(directory) if result.tries else None)
        finally:
            if not any(directory.iterdir()):
                directory.rmdir()  # the first try could not even start


def analyze(
    run: StrPath,
    *,
    full: bool = False,
    observer: RunObserver | None = None,
    master: str | None = None,
    analyst: Analyst | None = None,
) -> Summary:
    """Compute the tables and the verdict of a recording, in a directory or at a URL such as hdfs://host/runs/a.

    full: compute every table, including jitter and latencies per connection. The other arguments are those of `run`.
    """
    with opened_analyst(analyst, master) as opened:
        return opened.analyze(run, (observer or RunObserver()).progress, full=full)


def _experiment(given: Experiment | StrPath) -> Experiment:
    return given if isinstance(given, Experiment) else load_experiment(Path(given))


def _record(
    experiment: Experiment,
    *,
    out: Path,
    control: str | ControlAccess | None,
    observer: RunObserver,
    analyst: Analyst | None,
    interruption: Interruption | None,
    live: bool,
    prepare: bool,
    durable: bool,
    command: Sequence[str],
) -> RunResult:
    with ExitStack() as stack:
        tables = stack.enter_context(LiveTables(observer)) if live else None
        if analyst is not None:
            analyst.expect(expected_messages(experiment))
        following = _followed(observer, tables, interruption)
        result = execute(
            experiment,
            out=out,
            command=list(command) or ["crescendo.run", experiment.name],
            observer=following,
            control=control,
            preparations=[each for each in (analyst if prepare else None, tables) if each is not None],
            durable=durable,
        )
        if tables is not None:
            tables.finish(following.interrupted)
    observer.on_recorded(result)
    return result


def _followed(*observers: RunObserver | None) -> ObserverGroup:
    return ObserverGroup(*(each for each in observers if each is not None))


def _judge(result: RunResult, analyst: Analyst, observer: RunObserver, report: bool) -> RunResult:
    if not report:
        return replace(result, summary=analyst.analyze(result.run_dir, observer.progress))
    importing = threading.Thread(target=import_module, args=("crescendo.report.page",), daemon=True)
    importing.start()  # plotly and others, while the JVM computes
    summary = analyst.analyze(result.run_dir, observer.progress)
    importing.join()
    from crescendo.report.page import write_report

    observer.progress("writing the report")
    return replace(result, summary=summary, report=write_report(result.run_dir))


def _search_page(directory: Path) -> Path:
    from crescendo.report.search_page import write_search_page  # plotly

    return write_search_page(directory)
