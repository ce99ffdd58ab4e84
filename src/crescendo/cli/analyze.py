"""The verb `analyze`: tables and verdicts of recordings; for several recordings, a lake."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json
from crescendo.cli.terminal import EXIT_CODES, Progress, print_verdict
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.spark.settings import check_master
from crescendo.pipeline.storage.locations import LAKE_MARKER, is_url
from crescendo.record.manifest import MANIFEST, read_manifest

if TYPE_CHECKING:
    from crescendo.pipeline.lake.build import LakeBuild

_WORST_FIRST = (Outcome.FAIL, Outcome.INVALID, Outcome.PASS)
_LAKE = "lake"


@dataclass
class _Named:
    """The recordings that the user named, and what is wrong with the other arguments."""

    runs: list[Path | str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


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
    if master is not None:
        check_master(master)
    if len(runs) == 1 and lake is None and (is_url(runs[0]) or not _has_runs(Path(runs[0]))):
        return _single(runs[0], master, as_json, full)
    named = _named(runs)
    if not named.runs:
        raise ConfigError(named.faults[0] if named.faults else f"{runs[0]}: contains no recordings")
    lake_at: Path | str = _default_lake(named.runs) if lake is None else lake if is_url(lake) else Path(lake)
    use_java()
    with Progress() as progress:
        progress("starting Spark")
        # Imported only here: a mistyped path should fail before Spark is loaded.
        from crescendo.pipeline.lake.build import LakeBuild, build_lake
        from crescendo.pipeline.spark.session import close_session, open_session
        from crescendo.run.ceiling import with_ceiling

        spark = open_session(master, messages=_messages(named.runs))
        try:
            results = build_lake(named.runs, lake_at, spark, progress, full=full, finish=with_ceiling)
        finally:
            close_session(spark)
    results += [LakeBuild(fault.partition(": ")[0], fault=fault) for fault in named.faults]
    if as_json:
        print(_json(lake_at, results))
    else:
        _print(lake_at, results)
    outcomes = {Outcome.INVALID if one.summary is None else one.summary.verdict.outcome for one in results}
    return _exit_code(outcomes)


def _single(run: str, master: str | None, as_json: bool, full: bool) -> int:
    """A single run, as `crescendo run` analyses it: its own tables, and no lake."""
    from crescendo.run.analysis import Analyst

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


def _named(names: list[str]) -> _Named:
    """Recordings, and those in directories of recordings. A lake among them, as in runs/*, is skipped."""
    named = _Named()
    for name in names:
        path = Path(name)
        if is_url(name):
            named.runs.append(name)
        elif (path / MANIFEST).exists():
            named.runs.append(path)
        elif (path / LAKE_MARKER).exists():
            continue
        elif _has_runs(path):
            named.runs += [child for child in sorted(path.iterdir()) if _is_run(child)]
        else:
            named.faults.append(f"{path}: not a recording, because it has no {MANIFEST}")
    named.runs = list(dict.fromkeys(named.runs))
    return named


def _messages(runs: list[Path | str]) -> int | None:
    """How many messages the runs have together; None if nobody knows."""
    from crescendo.record.reader import recorded_messages

    manifests = []
    for run in runs:
        if isinstance(run, str):
            return None
        with suppress(ConfigError, OSError):  # it is set aside later, with the reason
            manifests.append(read_manifest(run))
    return recorded_messages(manifests)


def _is_run(path: Path) -> bool:
    """Whether this is a recording, and not a link such as `last` to one."""
    return not path.is_symlink() and (path / MANIFEST).exists()


def _has_runs(path: Path) -> bool:
    """Whether this is a directory of recordings, not a recording itself."""
    try:
        return not (path / MANIFEST).exists() and any(map(_is_run, path.iterdir()))
    except OSError:
        return False


def _default_lake(runs: list[Path | str]) -> Path | str:
    if all(isinstance(run, str) for run in runs):
        return str(runs[0]).rstrip("/").rpartition("/")[0] + f"/{_LAKE}"
    parents = [str(run.absolute().parent) for run in runs if isinstance(run, Path)]
    shared = Path(os.path.commonpath(parents)) / _LAKE
    return shared.relative_to(Path.cwd()) if shared.is_relative_to(Path.cwd()) else shared


def _exit_code(outcomes: set[Outcome]) -> int:
    return EXIT_CODES[next(outcome for outcome in _WORST_FIRST if outcome in outcomes)]


def _print(lake_at: Path | str, results: "list[LakeBuild]") -> None:
    for one in results:
        if one.summary is not None:
            print(f"{one.run}{'' if one.computed else '  (unchanged)'}")
            print_verdict(one.summary)
    aside = [one for one in results if one.summary is None]
    for one in aside:
        print(f"set aside  {one.fault}")
    computed = sum(one.computed for one in results)
    unchanged = len(results) - len(aside) - computed
    print(f"lake    {lake_at}: {computed} computed, {unchanged} unchanged, {len(aside)} set aside")


def _json(lake_at: Path | str, results: "list[LakeBuild]") -> str:
    runs = [
        {"run": str(one.run), "computed": one.computed, "fault": one.fault, "summary": one.summary} for one in results
    ]
    return msgspec.json.encode({"lake": str(lake_at), "runs": runs}).decode()
