"""What happens in a run in progress?

Follows a recording with a streaming query and passes every change to a callback. Ends when the run has ended and has
been read completely, or on request. State and progress of the query are in a private temporary directory. Writes
nothing into the recording except, beside the manifest, that the run was observed.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from crescendo.pipeline.live.growing_counts import MESSAGES, PART, PARTS, PERIOD, SEEN, StreamSetup, growing_counts
from crescendo.pipeline.live.periods import BatchInput, Periods
from crescendo.pipeline.live.snapshot import LiveTotals, Snapshot
from crescendo.pipeline.source.connections import connections_of
from crescendo.pipeline.spark.errors import SPARK_ERRORS, spark_errors
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.observed import has_ended, write_observation

LOOKBACK_NS = 600 * 10**9
"""Only messages from the last ten minutes are read; a day of them would exhaust the memory at the start."""

_POLL_S = 0.2
_FOREVER_NS = 2**63 - 1


Publish = Callable[[Snapshot], None]


def watch(
    run_dir: Path,
    spark: SparkSession,
    publish: Publish,
    *,
    period_ns: int = StreamSetup.period_ns,
    late_after_ns: int = StreamSetup.late_after_ns,
    trigger_s: float = 2.0,
    stop_requested: Callable[[], bool] = lambda: False,
) -> LiveTotals:
    """Publish every change until the run has ended. Returns the totals of everything read."""
    manifest = read_manifest(run_dir)
    setup = stream_setup(manifest, period_ns, late_after_ns)
    write_observation(run_dir, manifest, spark.sparkContext.defaultParallelism)
    with (
        spark_errors(f"the live tables of {run_dir}", "ended"),
        tempfile.TemporaryDirectory(prefix="crescendo-watch-", ignore_cleanup_errors=True) as private_dir,
    ):
        watcher = LiveWatcher(Path(private_dir), run_dir, spark, setup, manifest, trigger_s)
        try:
            while True:
                # Check first, then catch up: when the run has ended, its recording is complete.
                ended = has_ended(read_manifest(run_dir))
                if ended:
                    watcher.catch_up()
                for snapshot in watcher.snapshots(ended=ended):
                    publish(snapshot)
                if ended or stop_requested():
                    return watcher.periods.totals()
                time.sleep(_POLL_S)
        finally:
            watcher.stop()


def stream_setup(manifest: Manifest, period_ns: int, late_after_ns: int) -> StreamSetup:
    """Periods follow the wall clock; so far a run uses the clock of one host."""
    offset_ns = manifest.clocks[0].realtime_offset_ns if manifest.clocks else 0
    last_ns = max((phase.end_ns for phase in manifest.phases), default=None)
    if not has_ended(manifest):
        since_ns = time.time_ns() - LOOKBACK_NS
    else:
        since_ns = 0 if last_ns is None else last_ns + offset_ns - LOOKBACK_NS
    # An import may use the wall clock itself, starting anywhere: never go below zero.
    return StreamSetup(period_ns, late_after_ns, offset_ns, max(since_ns, 0))


class LiveWatcher:
    """One streaming query and its results so far."""

    def __init__(
        self,
        private_dir: Path,
        run_dir: Path,
        spark: SparkSession,
        setup: StreamSetup,
        manifest: Manifest,
        trigger_s: float,
    ) -> None:
        self._run = manifest.run
        self._batches: dict[int, pa.Table] = {}
        self._watermark_ns = 0
        self.periods = Periods(setup.period_ns)
        link = private_dir / "run"  # a plain name: Spark interprets some characters as patterns
        link.symlink_to(run_dir.resolve())
        self.query: StreamingQuery = (
            growing_counts(spark, link, connections_of(manifest), setup)
            .writeStream.outputMode("update")
            .foreachBatch(self._collect_batch)
            .option("checkpointLocation", str(private_dir / "progress"))
            .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
            .start()
        )

    def _collect_batch(self, counts: DataFrame, batch: int) -> None:
        """Runs in Spark's thread. Spark reports what the batch has read only after the batch."""
        self._batches[batch] = counts.toArrow()

    def catch_up(self) -> None:
        """Wait until everything recorded so far has been read."""
        self.query.processAllAvailable()

    def snapshots(self, *, ended: bool = False) -> list[Snapshot]:
        """Changes since the last call, one snapshot per batch. At the end all periods are closed."""
        if (failure := self.query.exception()) is not None:
            raise failure
        # While there is no data, Spark reports progress under the number of the next batch.
        finished = (progress for progress in self.query.recentProgress if "addBatch" in progress.durationMs)
        snapshots = [self._snapshot(progress) for progress in finished if progress.batchId in self._batches]
        if ended:
            periods = self.periods.emit((), _FOREVER_NS)
            snapshots.append(Snapshot(self._run, periods, self.periods.totals(), self._watermark_ns, ended=True))
        return snapshots

    def _snapshot(self, progress: Any) -> Snapshot:
        batch = progress.batchId
        changed = self.periods.add_batch(batch, self._batches.pop(batch), _batch_input(progress))
        # As reported by Spark: from the next batch on it drops messages for periods before the watermark.
        self._watermark_ns = _ns(progress.eventTime["watermark"])
        periods = self.periods.emit(changed, self._watermark_ns)
        return Snapshot(self._run, periods, self.periods.totals(), self._watermark_ns)

    def stop(self) -> None:
        with suppress(*SPARK_ERRORS):  # the query may already have ended
            self.query.stop()


def _batch_input(progress: Any) -> BatchInput:
    row = progress.observedMetrics.get(SEEN)
    if row is None:  # a batch without data, which only advances the watermark
        return BatchInput(0, frozenset())
    return BatchInput(row[MESSAGES] or 0, frozenset((pair[PART], pair[PERIOD]) for pair in row[PARTS]))


def _ns(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000) * 10**6
