"""The verb `analyze`: tables and verdicts of recordings; for several recordings, a lake."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json
from crescendo.cli.terminal import EXIT_CODES, Progress, print_verdict
from crescendo.model.verdict import Outcome
from crescendo.pipeline.spark.settings import check_master
from crescendo.pipeline.storage.locations import is_url
from crescendo.record.manifest import read_manifest

if TYPE_CHECKING:
    from crescendo.run.lake_session import AnalysedRuns

_WORST_FIRST = (Outcome.FAIL, Outcome.INVALID, Outcome.PASS)


def analyze(
    runs: Annotated[
        list[str], typer.Argument(help="Recordings, directories of them, or URLs such as hdfs://host/runs/a.")
    ],
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master, e.g. spark://host:7077. Default: this machine.")
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", metavar="DIR", help="Where the tables of several runs go. Default: lake, next to the runs."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute every table, including jitter and latencies per connection.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compute the tables and the verdict of recordings.

    Writes RUN/tables/ and RUN/summary.json. Given several recordings, it skips those that have not changed and collects
    the tables of all of them in a lake. The exit code is the worst verdict among them.
    """
    from crescendo.run.lake_session import analyze_all, has_runs

    if len(runs) == 1 and lake is None and (is_url(runs[0]) or not has_runs(Path(runs[0]))):
        return _single(runs[0], master, as_json, full)
    with Progress() as progress:
        analysed = analyze_all(runs, lake=lake, full=full, master=master, progress=progress)
    if as_json:
        print(_json(analysed))
    else:
        _print(analysed)
    outcomes = {Outcome.INVALID if one.summary is None else one.summary.verdict.outcome for one in analysed.runs}
    return _exit_code(outcomes)


def _single(run: str, master: str | None, as_json: bool, full: bool) -> int:
    """A single run, as `crescendo run` analyses it: its own tables, and no lake."""
    from crescendo.run.analysis import Analyst

    if master is not None:
        check_master(master)
    if not is_url(run):
        read_manifest(Path(run))  # reject a wrong path before looking for Java
    with Progress() as progress, Analyst(master) as analyst:
        summary = analyst.analyze(run, progress, full=full)
    if as_json:
        print(msgspec.json.encode([summary]).decode())
    else:
        print(run)
        print_verdict(summary)
    return _exit_code({summary.verdict.outcome})


def _exit_code(outcomes: set[Outcome]) -> int:
    return EXIT_CODES[next(outcome for outcome in _WORST_FIRST if outcome in outcomes)]


def _print(analysed: "AnalysedRuns") -> None:
    results = analysed.runs
    for one in results:
        if one.summary is not None:
            print(f"{one.run}{'' if one.computed else '  (unchanged)'}")
            print_verdict(one.summary)
    aside = [one for one in results if one.summary is None]
    for one in aside:
        print(f"set aside  {one.fault}")
    computed = sum(one.computed for one in results)
    unchanged = len(results) - len(aside) - computed
    print(f"lake    {analysed.lake}: {computed} computed, {unchanged} unchanged, {len(aside)} set aside")


def _json(analysed: "AnalysedRuns") -> str:
    runs = [
        {"run": str(one.run), "computed": one.computed, "fault": one.fault, "summary": one.summary}
        for one in analysed.runs
    ]
    return msgspec.json.encode({"lake": str(analysed.lake), "runs": runs}).decode()
