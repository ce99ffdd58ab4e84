"""How is Spark warmed up, so that it does not disturb the measurement?

The first batch of a query costs ten times as much CPU as later ones: classes are loaded, queries planned, code
compiled. So the whole query runs once before the measurement, on a temporary recording of three messages.
"""

import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.pipeline.live.watch import watch
from crescendo.record.manifest import ConnectionRecord, Manifest, State, write_manifest
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement
from crescendo.record.writer import Recorder

_NAME = "practice"
_COUNT = 3


def warm_up(spark: SparkSession) -> None:
    """Watch a tiny recording of a run that has already ended."""
    with tempfile.TemporaryDirectory(prefix="crescendo-practice-") as directory:
        _record(Path(directory))
        watch(Path(directory), spark, lambda _: None)


def _record(run_dir: Path) -> None:
    now_ns = time.time_ns()
    recorder = Recorder(run_dir, _NAME, durable=False)
    recorder.append(SENT, _COUNT, 0, range(_COUNT), 1, now_ns, now_ns, 32)
    recorder.append(RECEIVED, _COUNT, 0, 0, range(_COUNT), now_ns, now_ns, now_ns, range(_COUNT), 32, 0)
    recorder.append(SETTLED, 1, 0, 0, _COUNT - 1, now_ns, now_ns, int(Settlement.ACCEPTED))
    recorder.close()
    experiment = experiment_from({"name": _NAME})
    group = experiment.workload[0]
    where = {"peer": _NAME, "group": group.name, "address": group.address, "destination": group.destination}
    sender = ConnectionRecord(id=0, role="sender", **where)
    receiver = ConnectionRecord(id=0, role="receiver", subscription=group.address, **where)
    document = to_document(experiment)
    write_manifest(
        run_dir, Manifest(_NAME, 0, document, [], now_ns, state=State.SEALED, connections=[sender, receiver])
    )
