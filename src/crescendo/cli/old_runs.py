"""The verbs `runs list`, `runs prune` and `runs compact`: which recordings are there, which may go."""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.cli.baseline import DEFAULT_FILE, BaselineFile
from crescendo.cli.options import Json
from crescendo.cli.terminal import Progress, can_ask, confirms
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.history.kept_runs import KeptRun

RUNS_HELP = "Recordings in a directory: list them, delete old ones, copy their lake into few files."
RunsDir = Annotated[Path, typer.Argument(metavar="DIR", help="A directory of recordings.")]


def list_(directory: RunsDir = Path("runs"), as_json: Json = False) -> int:
    """List recordings: when, how they ended, their verdict and their size."""
    from crescendo.history.kept_runs import runs_in

    found = runs_in(directory)
    if as_json:
        print(json.dumps([asdict(run) for run in found]))
        return 0
    for run in found:
        print(_line(run))
    print(f"{len(found)} run(s), {_size(found)}")
    return 0


def prune(
    directory: RunsDir = Path("runs"),
    keep_last: Annotated[int, typer.Option("--keep-last", min=1, help="Keep this many of each experiment.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Also delete runs that did not pass.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    baselines: BaselineFile = DEFAULT_FILE,
) -> int:
    """Delete old recordings. The last of each experiment, runs of baselines and runs that did not pass are kept."""
    from crescendo.history.baseline_file import read_baselines
    from crescendo.history.kept_runs import delete_run, runs_in, with_reasons

    every = with_reasons(
        runs_in(directory), directory, read_baselines(baselines), keep_last=keep_last, keep_failed=not failed
    )
    doomed = [run for run in every if not run.reasons]
    for run in doomed:
        print(_line(run))
    kept = f"{len(every) - len(doomed)} run(s) are kept"
    if dry_run or not doomed:
        print(f"{len(doomed)} run(s) would be deleted, {_size(doomed)}; {kept}")
        return 0
    if not yes:
        _ask(f"this deletes {len(doomed)} run(s), {_size(doomed)}; {kept}")
    for run in doomed:
        delete_run(directory, run.name)
    print(f"{len(doomed)} run(s) deleted, {_size(doomed)}; {kept}")
    return 0


def compact(
    lake: Annotated[Path, typer.Argument(metavar="LAKE", help="The lake of many runs.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="Where the copy goes; an earlier copy is replaced.")],
) -> int:
    """Copy a lake into a few large files per table, which queries and histories of thousands of runs read faster."""
    from crescendo.pipeline.lake.compacted import compact_lake

    with Progress() as progress:
        made = compact_lake(lake, copy, progress)
    print(f"{made.runs} run(s), {made.files_before} files in {made.files}: {copy}")
    return 0


def _ask(question: str) -> None:
    if not can_ask():
        raise ConfigError(
            "nothing was deleted: without a terminal nobody can confirm it; give --yes, or --dry-run to look first"
        )
    if not confirms(question):
        raise ConfigError("nothing was deleted")


def _line(run: "KeptRun") -> str:
    started = datetime.fromtimestamp(run.started_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{started}  {run.outcome or '–':8} {run.state:12} {_size([run]):>9}  {run.name}"


def _size(runs: "list[KeptRun]") -> str:
    octets = float(sum(run.octets for run in runs))
    for unit in ("B", "KB", "MB"):
        if octets < 1000:
            return f"{octets:.0f} {unit}"
        octets /= 1000
    return f"{octets:.1f} GB"


RUNS_VERBS: dict[str, Callable[..., int]] = {"list": list_, "prune": prune, "compact": compact}
"""In the order of the help."""
