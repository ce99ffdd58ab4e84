"""How do later Spark sessions start faster than the first?

Analyses a recording of a few messages with a JVM that dumps, on exit, every class it loaded, and keeps the command of
that JVM. This takes a few seconds longer than a first analysis, once, during set-up:
`python -m crescendo.pipeline.rehearsal`. `class_archive` says where the archive is, `kept_command` what
the command is for.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.pipeline.context import open_context
from crescendo.pipeline.job import analyze, tabulate
from crescendo.pipeline.source.ingest import readable_recording
from crescendo.pipeline.spark.class_archive import archive_path
from crescendo.pipeline.spark.jvm_start import prepare_jvm
from crescendo.pipeline.spark.kept_command import keep_command
from crescendo.pipeline.spark.session import close_session, open_session
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record.manifest import ConnectionRecord, Manifest, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import READINGS, RECEIVED, SENT, SETTLED, Settlement
from crescendo.record.writer import Recorder

_SECOND_NS = 10**9


def rehearse() -> Path:
    """Create the archive of this environment, unless it exists."""
    path = archive_path()
    if path is None:
        raise ConfigError("JAVA_HOME does not point to a Java installation, so no class archive can be created")
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with tempfile.TemporaryDirectory(prefix="crescendo-rehearsal-") as directory:
        _record(Path(directory))
        jvm = prepare_jvm(java_options=(f"-XX:ArchiveClassesAtExit={draft}",), by_kept_command=False)
        spark = open_session(jvm=jvm)
        try:
            gateway: Any = SparkContext._gateway
            keep_command(gateway.proc.pid, jvm.settings)
            _analyze_both_ways(Path(directory), spark)
        finally:
            close_session(spark)
    if not draft.exists():
        raise ConfigError(f"Java did not write its class archive to {draft}; sessions start slower without it")
    return draft.rename(path)


def _analyze_both_ways(run_dir: Path, spark: SparkSession) -> None:
    """As a small recording, interpreted and collected, and as a large one, compiled and written by Spark."""
    analyze(run_dir, spark, lambda _: None)
    tabulate(open_context(readable_recording(run_dir), spark, full=False), TableStore(run_dir), lambda _: None)


def _record(run_dir: Path) -> None:
    """Three messages sent, one of them lost: the analysis then runs through every step of the ledger."""
    recorder = Recorder(run_dir, "rehearsal", durable=False)
    numbers = np.arange(3)
    recorder.append(SENT, 3, 0, numbers, 1, numbers + 1, numbers + 1, 32)
    recorder.append(SETTLED, 1, 0, 0, 2, 1, 2, int(Settlement.ACCEPTED))
    two = numbers[:2]
    recorder.append(RECEIVED, 2, 0, 0, two, two + 1, two + 1, two + 5, two, 32, 0)
    recorder.append(READINGS, 3, numbers, "rehearsal", "entity", "metric", numbers * 1.5)
    recorder.close()
    experiment = experiment_from({"name": "rehearsal"})
    group = experiment.workload[0]
    where = {"peer": "rehearsal", "group": group.name, "address": group.address, "destination": group.destination}
    write_manifest(
        run_dir,
        Manifest(
            run="rehearsal",
            tag=0,
            experiment=to_document(experiment),
            command=[],
            started_ns=0,
            state=State.SEALED,
            connections=[
                ConnectionRecord(id=0, role="sender", **where),
                ConnectionRecord(id=0, role="receiver", subscription=group.address, **where),
            ],
            phases=[Phase("measure", 0, _SECOND_NS)],
            files=list(journalled_parts(run_dir)),
        ),
    )


if __name__ == "__main__":
    from crescendo.pipeline.spark.java import use_java

    use_java()
    print(rehearse())
