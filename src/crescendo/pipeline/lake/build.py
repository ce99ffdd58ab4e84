"""How do many recordings become one lake?

In one Spark session, some dozens of runs at a time: the messages of small runs are scanned together, and then each run
is judged. A run whose recording and tables are unchanged is not computed again. A run that cannot be analysed is named
and skipped, and the others continue. If the build is killed at any moment, the next one resumes with the runs that were
not finished. Decides which runs to compute; `job` computes them.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.pipeline.job import Finish, ScannedRun, analyze_recording, scanned_together
from crescendo.pipeline.joint_scan import MAX_RUNS
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.lake.lake_lock import exclusive
from crescendo.pipeline.receipts import current_receipt, read_receipt, summary_at
from crescendo.pipeline.source.ingest import LocatedRecording, readable_recording, remote_recording
from crescendo.pipeline.spark.errors import SPARK_ERRORS, spark_errors
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.record.manifest import Manifest
from crescendo.record.observed import OBSERVED_FILE, host_facts
from crescendo.record.summary import Summary

Progress = Callable[[str], None]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class LakeBuild:
    """The result for one run: a summary, or the reason why there is none."""

    run: Path | str
    summary: Summary | None = None
    computed: bool = False
    fault: str = ""


def build_lake(
    runs: Sequence[Path | str],
    lake_at: Path | str,
    spark: SparkSession,
    progress: Progress,
    *,
    full: bool = False,
    finish: Finish | None = None,
) -> list[LakeBuild]:
    """Analyse the runs that need it and add all of them to the lake. Results are in the order of `runs`."""
    with ExitStack() as stack:
        lake = Lake(_location(lake_at, spark, stack))
        try:
            lake.open()
            if isinstance(lake_at, Path):
                stack.enter_context(exclusive(lake_at))
        except OSError as err:
            raise ConfigError(f"--lake {lake_at}: cannot be written: {err.strerror or err}") from err
        building = _Building(lake, spark, full, finish)
        numbered = iter(enumerate(runs, start=1))
        results: list[LakeBuild] = []
        while some := list(islice(numbered, MAX_RUNS)):
            reports = [_report(progress, f"{number} of {len(runs)}, {run}") for number, run in some]
            results += building.build([run for _, run in some], reports)
        return results


@dataclass(frozen=True)
class _OpenRun:
    """A run whose recording is open, and the results of an earlier analysis if they are still valid."""

    run: Path | str
    recording: LocatedRecording
    summary: Summary | None
    is_in_lake: bool


@dataclass(frozen=True)
class _Building:
    """How the runs of one call become part of a lake."""

    lake: Lake
    spark: SparkSession
    full: bool
    finish: Finish | None

    def build(self, runs: Sequence[Path | str], reports: Sequence[Progress]) -> list[LakeBuild]:
        """The results of some runs, in their order."""
        with ExitStack() as stack:
            opened = [
                self._or_fault(run, partial(self._open, run, report, stack))
                for run, report in zip(runs, reports, strict=True)
            ]
            scanned = self._scan([each for each in opened if isinstance(each, _OpenRun)], reports[0])
            return [
                each
                if isinstance(each, LakeBuild)
                else self._or_fault(each.run, partial(self._add, each, scanned.get(each.run), report))
                for each, report in zip(opened, reports, strict=True)
            ]

    def _or_fault(self, run: Path | str, step: Callable[[], ResultT]) -> ResultT | LakeBuild:
        """The result of a step; if it fails because of the run, a result that says why."""
        try:
            return step()
        except (CrescendoError, OSError) as err:
            if not _spark_alive(self.spark):
                raise
            return LakeBuild(run, fault=str(err) if isinstance(err, CrescendoError) else f"{run}: {err}")

    def _open(self, run: Path | str, progress: Progress, stack: ExitStack) -> _OpenRun:
        progress("checking the recording")
        recording = _open_recording(run, self.spark, stack)
        known = _existing_entry(self.lake, run, recording.manifest)
        receipt = current_receipt(recording.location, recording, full=self.full)
        summary = None if receipt is None else summary_at(recording.location)
        same = known is not None and summary is not None and (known.receipt, known.summary) == (receipt, summary)
        return _OpenRun(run, recording, summary, same)

    def _scan(self, opened: Sequence[_OpenRun], progress: Progress) -> dict[Path | str, ScannedRun | None]:
        """Count the messages of the runs that have no results."""
        named = {(_experiment(each.recording.manifest), each.recording.manifest.run): each for each in reversed(opened)}
        fresh = [each for each in named.values() if each.summary is None]  # a namesake is refused later
        if self.full or len(fresh) < 2:
            return {}
        progress(f"counting the messages of {len(fresh)} runs")
        with spark_errors(f"the analysis of {len(fresh)} runs"):
            scanned = scanned_together([each.recording for each in fresh], self.spark)
        return dict(zip((each.run for each in fresh), scanned, strict=True))

    def _add(self, opened: _OpenRun, scanned: ScannedRun | None, progress: Progress) -> LakeBuild:
        run, recording, summary = opened.run, opened.recording, opened.summary
        if summary is not None and opened.is_in_lake:
            return LakeBuild(run, summary)
        _existing_entry(self.lake, run, recording.manifest)  # a namesake may be in the lake by now
        computed = summary is None
        if summary is None:
            summary = analyze_recording(
                recording, self.spark, progress, full=self.full, finish=self.finish, scanned=scanned
            )
        location, manifest = recording.location, recording.manifest
        receipt = read_receipt(location)
        if receipt is None:
            raise LostError(f"{run}: another process is changing it at the same time")
        progress("into the lake")
        host = host_facts(manifest, location.read(OBSERVED_FILE))
        described = msgspec.structs.replace(manifest, files=[], host=host)
        entry = LakeEntry(_experiment(manifest), manifest.run, str(run), receipt, described, summary)
        self.lake.add_run(entry, location)
        return LakeBuild(run, summary, computed)


def _report(progress: Progress, run: str) -> Progress:
    return lambda sentence: progress(f"{run}: {sentence}")


def _existing_entry(lake: Lake, run: Path | str, manifest: Manifest) -> LakeEntry | None:
    known = lake.entry(_experiment(manifest), manifest.run)
    if known is None or (known.manifest.tag, known.manifest.started_ns) == (manifest.tag, manifest.started_ns):
        return known
    raise ConfigError(
        f"{run}: the lake {lake.location} has another run {manifest.run} of the experiment {_experiment(manifest)}, "
        f"recorded in {known.path}; give one of them a separate lake with --lake"
    )


def _experiment(manifest: Manifest) -> str:
    return str(manifest.experiment.get("name") or "unnamed")


def _open_recording(run: Path | str, spark: SparkSession, stack: ExitStack) -> LocatedRecording:
    if isinstance(run, Path):
        return readable_recording(run)
    scratch_dir = _scratch_dir(stack)
    return remote_recording(HadoopLocation(run, spark, scratch_dir), scratch_dir, spark)


def _location(at: Path | str, spark: SparkSession, stack: ExitStack) -> Location:
    return Directory(at) if isinstance(at, Path) else HadoopLocation(at, spark, _scratch_dir(stack))


def _scratch_dir(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crescendo-scratch-")))


def _spark_alive(spark: SparkSession) -> bool:
    """Whether Spark still works, so that the failure is the run's."""
    try:
        context: Any = spark.sparkContext._jsc
        return not context.sc().isStopped()
    except SPARK_ERRORS:
        return False
