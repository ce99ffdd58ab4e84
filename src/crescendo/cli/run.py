"""The verbs `run` and `demo`: run the experiment, analyse it, write the report, print the verdict."""

import shlex
import signal
import sys
from importlib.resources import files
from pathlib import Path
from types import FrameType

import msgspec
import yaml

from crescendo.cli.live_view import LiveView
from crescendo.cli.terminal import EXIT_CODES, Progress, print_verdict
from crescendo.cli.watch import LiveTables
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, load_experiment, redact_override
from crescendo.model.verdict import Outcome
from crescendo.pipeline.spark.settings import check_master
from crescendo.record.manifest import State
from crescendo.record.summary import Summary
from crescendo.run.analysis import Analyst
from crescendo.run.execute import RunObserver, RunResult, execute


def run(
    path: Path,
    overrides: tuple[str, ...],
    out: Path,
    control_url: str | None,
    as_json: bool,
    live: bool = False,
    master: str | None = None,
) -> int:
    if master is not None:
        check_master(master)
    experiment = load_experiment(path, overrides)
    command = ["crescendo", "run", str(path)]
    for override in overrides:
        command += ["--set", redact_override(override)]
    if live:
        command.append("--live")
    if master is not None:
        command += ["--master", master]
    if experiment.search is not None:
        if live:
            raise ConfigError(f"--live: it follows a single run, but {path} is a search over many; remove it")
        from crescendo.cli.search import search

        return search(experiment, command, out, control_url, as_json, master)
    return _run_experiment(experiment, command, out, control_url, as_json, live, master)


def demo(out: Path, as_json: bool) -> int:
    document = yaml.safe_load((files("crescendo.run") / "demo.yml").read_text(encoding="utf-8"))
    return _run_experiment(experiment_from(document), ["crescendo", "demo"], out, None, as_json)


class Interruption:
    """Ctrl-C and SIGTERM: the first asks the run to stop, the second aborts it."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _run_experiment(
    experiment: Experiment,
    command: list[str],
    out: Path,
    control_url: str | None,
    as_json: bool,
    live: bool = False,
    master: str | None = None,
) -> int:
    interruption = Interruption()
    with Analyst(master) as analyst:  # fails at once when there is no Java, not after the run
        result = execute_observed(experiment, command, out, control_url, analyst, interruption, live)
        if result.state is State.INTERRUPTED:
            return _say_interrupted(result.run_dir)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)  # from here on there is nothing left to seal
        try:
            with Progress() as progress:
                summary = analyst.analyze(result.run_dir, progress)
                progress("writing the report")
                report_path = write_page(result.run_dir)
        except KeyboardInterrupt:
            analyst.close(at_once=True)
            return _say_interrupted(result.run_dir)
        _show(summary, report_path, as_json)  # before Spark is shut down: the user need not wait for that
    return EXIT_CODES[summary.verdict.outcome]


def _say_interrupted(run_dir: Path) -> int:
    print(f"VERDICT invalid · interrupted · the partial recording is kept in {run_dir}", flush=True)
    print(f"  to analyse it: crescendo analyze {shlex.quote(str(run_dir))}", file=sys.stderr)
    return EXIT_CODES[Outcome.INVALID]


def execute_observed(
    experiment: Experiment,
    command: list[str],
    out: Path,
    control_url: str | None,
    analyst: Analyst,
    interruption: Interruption,
    live: bool = False,
) -> RunResult:
    with Progress() as progress, LiveView() as view, LiveTables(live, view.say) as tables:

        def on_event(event: RecordEvent) -> None:
            if event.kind == "start":
                progress.pause()
            elif event.kind == "lost":
                view.say(f"lost {event.detail['peer']}: {event.detail['reason']}; the run can no longer pass")

        def interrupted() -> bool:
            return interruption.asked

        def prepare() -> None:
            analyst.warm_up()
            tables.start()

        def await_prepared() -> None:
            analyst.wait(interrupted)
            if live:
                progress("warming up Spark for the live tables")
            tables.wait_until_ready(interrupted)

        def watch(state: RunState) -> None:
            view(state)
            tables.follow(state)

        observer = RunObserver(interrupted, progress, watch, on_event, prepare, await_prepared)
        result = execute(experiment, out=out, command=command, observer=observer, control_url=control_url)
        tables.finish(interrupted)
        return result


def write_page(run_dir: Path) -> Path:
    from crescendo.report.page import write_report

    return write_report(run_dir)


def _show(summary: Summary, report_path: Path, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(summary).decode(), flush=True)
        return
    print_verdict(summary)
    print(f"report  {report_path}", flush=True)
