"""How do many recordings become tables and verdicts at once?

Finds the recordings that are meant, analyses those that changed with one Spark, and collects the tables of all in a
lake. A recording that cannot be analysed is set aside with its reason, and the others continue. Prints nothing.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.settings import check_master
from crescendo.pipeline.storage.locations import LAKE_MARKER, is_url
from crescendo.record.manifest import MANIFEST, read_manifest
from crescendo.record.reader import recorded_messages
from crescendo.record.run_links import is_recording
from crescendo.run.analysis import Analyst, Progress, opened_analyst
from crescendo.run.ceiling import with_ceiling

if TYPE_CHECKING:
    from crescendo.pipeline.lake.build import LakeBuild

StrPath = str | os.PathLike[str]
_LAKE = "lake"


@dataclass(frozen=True)
class AnalysedRuns:
    """The lake, and what became of each recording: its summary, or why it was set aside."""

    lake: Path | str
    runs: "list[LakeBuild]"


@dataclass
class _Named:
    """The recordings that the caller named, and what is wrong with the other arguments."""

    runs: list[Path | str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def analyze_all(
    runs: Sequence[StrPath],
    *,
    lake: StrPath | None = None,
    full: bool = False,
    progress: Progress = lambda _: None,
    master: str | None = None,
    analyst: Analyst | None = None,
) -> AnalysedRuns:
    """Compute the tables and the verdicts of recordings, directories of them, or URLs, and collect them in a lake.

    lake: a directory or a URL; `lake`, next to the runs, by default. What has not changed since is not computed again.
    progress: called with each step, in a few words. The other arguments are those of `analyze`.
    """
    if master is not None:
        check_master(master)
    named = _named(runs)
    if not named.runs:
        raise ConfigError(named.faults[0] if named.faults else f"{os.fspath(runs[0])}: contains no recordings")
    at = _default_lake(named.runs) if lake is None else _location(lake)
    with opened_analyst(analyst, master) as opened:
        opened.expect(_messages(named.runs))
        spark = opened.session(progress)
        from crescendo.pipeline.lake.build import LakeBuild, build_lake  # PySpark: after wrong paths were refused

        results = build_lake(named.runs, at, spark, progress, full=full, finish=with_ceiling)
    return AnalysedRuns(at, results + [LakeBuild(fault.partition(": ")[0], fault=fault) for fault in named.faults])


def has_runs(path: Path) -> bool:
    """Whether this is a directory of recordings, not a recording itself."""
    try:
        return not (path / MANIFEST).exists() and any(map(is_recording, path.iterdir()))
    except OSError:
        return False


def _named(given: Sequence[StrPath]) -> _Named:
    """Recordings, and those in directories of recordings. A lake among them, as in runs/*, is skipped."""
    named = _Named()
    for each in map(_location, given):
        if isinstance(each, str) or (each / MANIFEST).exists():
            named.runs.append(each)
        elif (each / LAKE_MARKER).exists():
            continue
        elif has_runs(each):
            named.runs += [child for child in sorted(each.iterdir()) if is_recording(child)]
        else:
            named.faults.append(f"{each}: not a recording, because it has no {MANIFEST}")
    named.runs = list(dict.fromkeys(named.runs))
    return named


def _location(given: StrPath) -> Path | str:
    text = os.fspath(given)
    return text if is_url(text) else Path(text)


def _messages(runs: list[Path | str]) -> int | None:
    """How many messages the runs have together; None if nobody knows."""
    manifests = []
    for run in runs:
        if isinstance(run, str):
            return None
        with suppress(ConfigError, OSError):  # it is set aside later, with the reason
            manifests.append(read_manifest(run))
    return recorded_messages(manifests)


def _default_lake(runs: list[Path | str]) -> Path | str:
    if all(isinstance(run, str) for run in runs):
        return str(runs[0]).rstrip("/").rpartition("/")[0] + f"/{_LAKE}"
    parents = [str(run.absolute().parent) for run in runs if isinstance(run, Path)]
    shared = Path(os.path.commonpath(parents)) / _LAKE
    return shared.relative_to(Path.cwd()) if shared.is_relative_to(Path.cwd()) else shared
