"""How do many recordings become one lake?

One after another in one Spark session. A run whose recording and tables are unchanged is not computed again. A run that
cannot be analysed is named and skipped, and the others continue. If the build is killed at any moment, the next one
resumes with the run at which it was killed. Decides which runs to compute; `job` computes them.
"""

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.pipeline.job import Finish, analyze_recording
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.receipts import current_receipt, read_receipt, summary_at
from crescendo.pipeline.source.ingest import LocatedRecording, readable_recording, remote_recording
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.record.manifest import Manifest
from crescendo.record.observed import OBSERVED_FILE, host_facts
from crescendo.record.summary import Summary

Progress = Callable[[str], None]


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
                stack.enter_context(_exclusive(lake_at))
        except OSError as err:
            raise ConfigError(f"--lake {lake_at}: cannot be written: {err.strerror or err}") from err
        results = []
        for number, run in enumerate(runs, start=1):

            def report(sentence: str, number: int = number, run: Path | str = run) -> None:
                progress(f"{number} of {len(runs)}, {run}: {sentence}")

            try:
                results.append(_build_run(run, lake, spark, report, full, finish))
            except (CrescendoError, OSError) as err:
                if not _spark_alive(spark):
                    raise
                results.append(LakeBuild(run, fault=str(err) if isinstance(err, CrescendoError) else f"{run}: {err}"))
        return results


def _build_run(
    run: Path | str, lake: Lake, spark: SparkSession, progress: Progress, full: bool, finish: Finish | None
) -> LakeBuild:
    with ExitStack() as stack:
        progress("checking the recording")
        recording = _open_recording(run, spark, stack)
        location, manifest = recording.location, recording.manifest
        known = _existing_entry(lake, run, manifest)
        receipt, summary = current_receipt(location, recording, full=full), summary_at(location)
        if known is not None and receipt is not None and (known.receipt, known.summary) == (receipt, summary):
            return LakeBuild(run, summary)
        computed = receipt is None or summary is None
        if computed:
            summary = analyze_recording(recording, spark, progress, full=full, finish=finish)
        receipt = read_receipt(location)
        if receipt is None or summary is None:
            raise LostError(f"{run}: another process is changing it at the same time")
        progress("into the lake")
        host = host_facts(manifest, location.read(OBSERVED_FILE))
        described = msgspec.structs.replace(manifest, files=[], host=host)
        lake.add_run(LakeEntry(_experiment(manifest), manifest.run, str(run), receipt, described, summary), location)
        return LakeBuild(run, summary, computed)


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
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crescendo-desk-")))


@contextmanager
def _exclusive(lake: Path) -> Iterator[None]:
    """Two builds at once would remove each other's drafts. The kernel releases the lock however the process ends."""
    with (lake / ".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--lake {lake}: another analysis is writing it; wait for it, or choose another lake"
            ) from None
        yield


def _spark_alive(spark: SparkSession) -> bool:
    """Whether Spark still works, so that the failure is the run's."""
    try:
        context: Any = spark.sparkContext._jsc
        return not context.sc().isStopped()
    except Py4JError:
        return False
