"""Which recordings are in a directory, and which of them may be deleted?

Kept: the last few of each experiment, runs of a baseline, runs that did not pass, what a link points at, and runs that
have not ended. Deletes only directories that are recordings, directly in the directory that was named.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from crescendo.history.baseline_file import Baselines
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import State, read_manifest
from crescendo.record.run_links import is_recording, linked_runs
from crescendo.record.summary import SUMMARY, read_summary


@dataclass(frozen=True)
class KeptRun:
    """One recording, and why it stays; without a reason it may be deleted."""

    name: str
    experiment: str
    started_ns: int
    state: str
    outcome: str  # pass, fail, invalid; empty: not analysed
    octets: int
    has_ended: bool
    reasons: tuple[str, ...] = ()


def runs_in(directory: Path) -> list[KeptRun]:
    """Every recording, the oldest first. What cannot be read is left out: it is not deleted either."""
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such directory")
    found = []
    for path in directory.iterdir():
        if not is_recording(path):
            continue
        try:
            found.append(_run(path))
        except ConfigError:
            continue
    return sorted(found, key=lambda run: (run.started_ns, run.name))


def with_reasons(
    runs: Iterable[KeptRun], directory: Path, baselines: Baselines, *, keep_last: int, keep_failed: bool = True
) -> list[KeptRun]:
    """The runs with the reasons why each stays."""
    runs = list(runs)
    by_experiment: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        by_experiment[run.experiment].append(run.name)
    latest = {name for names in by_experiment.values() for name in names[len(names) - min(keep_last, len(names)) :]}
    of_baseline = {each.name for baseline in baselines.baselines.values() for each in baseline.runs}
    linked = linked_runs(directory)

    def reasons(run: KeptRun) -> Iterable[str]:
        if run.name in latest:
            yield f"one of the last {keep_last}"
        if run.name in of_baseline:
            yield "baseline"
        if keep_failed and run.outcome != Outcome.PASS:
            yield "did not pass" if run.outcome else "not analysed"
        if run.name in linked:
            yield "linked"
        if not run.has_ended:
            yield "has not ended"

    return [replace(run, reasons=tuple(reasons(run))) for run in runs]


def delete_run(directory: Path, name: str) -> None:
    """Delete a recording; under another name first, so that half of one is never taken for a whole."""
    path = directory / name
    if path.parent != directory or not is_recording(path):
        raise ConfigError(f"{path}: not a recording")
    doomed = directory / f".{name}.deleted"
    try:
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as err:
        raise ConfigError(f"{path}: cannot be deleted: {err.strerror}") from err


def _run(path: Path) -> KeptRun:
    manifest = read_manifest(path)
    outcome = ""
    if (path / SUMMARY).exists():
        try:
            outcome = read_summary(path).verdict.outcome.value
        except ConfigError:
            outcome = ""
    # Until its end a run is incomplete for no reason.
    has_ended = manifest.state is not State.INCOMPLETE or bool(manifest.reason)
    return KeptRun(
        path.name,
        str(manifest.experiment.get("name", "")),
        manifest.started_ns,
        manifest.state.value,
        outcome,
        _octets(path),
        has_ended,
    )


def _octets(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += (Path(folder) / file).lstat().st_size
            except OSError:
                continue
    return total
