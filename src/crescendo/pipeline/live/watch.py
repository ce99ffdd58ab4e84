"""What happens in a run while it goes on?

Follows a recording with a streaming query of its own and hands what changed to whoever wants to show or publish it.
Ends when the run has ended and everything of it was read, or when it is asked to. What it needs on disk (the state and
the progress of the query) lies in a private directory that disappears with it. Touches the recording only to leave a
note that it was there.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from crescendo.model.errors import LostError
from crescendo.pipeline.live.periods import Periods, Seen
from crescendo.pipeline.live.snapshot import LiveTotals, Snapshot
from crescendo.pipeline.live.stream import MESSAGES, PART, PARTS, PERIOD, SEEN, StreamSetup, growing_counts
from crescendo.pipeline.source.connections import connections_of
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.observed import has_ended, write_note

BACK_NS = 600 * 10**9
"""So much of the past is looked at; a day of it would fill the memory before anything could be shown."""

_LOOK_S = 0.2
_FOR_EVER_NS = 2**63 - 1


Publish = Callable[[Snapshot], None]


def watch(
    run_dir: Path,
    spark: SparkSession,
    publish: Publish,
    *,
    period_ns: int = StreamSetup.period_ns,
    late_after_ns: int = StreamSetup.late_after_ns,
    trigger_s: float = 2.0,
    asked_to_end: Callable[[], bool] = lambda: False,
) -> LiveTotals:
    """Publish every change until the run has ended. Returns the account of all that was seen."""
    manifest = read_manifest(run_dir)
    terms = stream_setup(manifest, period_ns, late_after_ns)
    write_note(run_dir, manifest, spark.sparkContext.defaultParallelism)
    try:
        with tempfile.TemporaryDirectory(prefix="crescendo-watch-", ignore_cleanup_errors=True) as private:
            watcher = LiveWatcher(Path(private), run_dir, spark, terms, manifest, trigger_s)
            try:
                while True:
                    # In this order: what is recorded when the run has ended is all of it.
                    ended = has_ended(read_manifest(run_dir))
                    if ended:
                        watcher.catch_up()
                    for glance in watcher.glances(ended=ended):
                        publish(glance)
                    if ended or asked_to_end():
                        return watcher.periods.account()
                    time.sleep(_LOOK_S)
            finally:
                watcher.stop()
    except (PySparkException, Py4JError) as err:
        raise LostError(f"the live tables of {run_dir} ended: {str(err).splitlines()[0]}") from err


def stream_setup(manifest: Manifest, period_ns: int, late_after_ns: int) -> StreamSetup:
    """Periods are those of the wall clock; a run has one host's clock so far."""
    offset_ns = manifest.clocks[0].realtime_offset_ns if manifest.clocks else 0
    last_ns = max((phase.end_ns for phase in manifest.phases), default=None)
    if not has_ended(manifest):
        since_ns = time.time_ns() - BACK_NS
    else:
        since_ns = 0 if last_ns is None else last_ns + offset_ns - BACK_NS
    # A clock that is the wall clock already, as that of an import, may begin anywhere.
    return StreamSetup(period_ns, late_after_ns, offset_ns, max(since_ns, 0))


class LiveWatcher:
    """One streaming query and what it has said so far."""

    def __init__(
        self,
        private: Path,
        run_dir: Path,
        spark: SparkSession,
        terms: StreamSetup,
        manifest: Manifest,
        trigger_s: float,
    ) -> None:
        self._run = manifest.run
        self._batches: dict[int, pa.Table] = {}
        self._watermark_ns = 0
        self.periods = Periods(terms.period_ns)
        link = private / "run"  # a name without surprises: Spark takes some characters for patterns
        link.symlink_to(run_dir.resolve())
        self.query: StreamingQuery = (
            growing_counts(spark, link, connections_of(manifest), terms)
            .writeStream.outputMode("update")
            .foreachBatch(self._take)
            .option("checkpointLocation", str(private / "progress"))
            .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
            .start()
        )

    def _take(self, counts: DataFrame, batch: int) -> None:
        """In Spark's thread. What the batch has read is told only when it is over."""
        self._batches[batch] = counts.toArrow()

    def catch_up(self) -> None:
        """Until everything that is there now was read."""
        self.query.processAllAvailable()

    def glances(self, *, ended: bool = False) -> list[Snapshot]:
        """What changed since the last time, batch by batch. With the end everything is closed."""
        if (failure := self.query.exception()) is not None:
            raise failure
        # While nothing comes, Spark reports under the number of the batch that is still to come.
        over = (progress for progress in self.query.recentProgress if "addBatch" in progress.durationMs)
        told = [self._glance(progress) for progress in over if progress.batchId in self._batches]
        if ended:
            periods = self.periods.described((), _FOR_EVER_NS)
            told.append(Snapshot(self._run, periods, self.periods.account(), self._watermark_ns, ended=True))
        return told

    def _glance(self, progress: Any) -> Snapshot:
        batch = progress.batchId
        changed = self.periods.take(batch, self._batches.pop(batch), _seen(progress))
        # Spark's own word: from the next batch on, what comes for periods before it is left out.
        self._watermark_ns = _ns(progress.eventTime["watermark"])
        periods = self.periods.described(changed, self._watermark_ns)
        return Snapshot(self._run, periods, self.periods.account(), self._watermark_ns)

    def stop(self) -> None:
        with suppress(PySparkException, Py4JError):  # it may have ended by itself
            self.query.stop()


def _seen(progress: Any) -> Seen:
    row = progress.observedMetrics.get(SEEN)
    if row is None:  # a batch without data, for the sake of the watermark alone
        return Seen(0, frozenset())
    return Seen(row[MESSAGES] or 0, frozenset((pair[PART], pair[PERIOD]) for pair in row[PARTS]))


def _ns(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000) * 10**6
