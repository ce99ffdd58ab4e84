"""What does every step of an analysis need to know about its recording?

Opens the recording and reads its manifest. Computes nothing.
"""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from crescendo.pipeline.source.connections import Connections, connections_of
from crescendo.pipeline.source.imported_counts import ImportedCounts, imported_counts_of
from crescendo.pipeline.source.ingest import Frames, LocatedRecording, frames_of
from crescendo.pipeline.source.moments import Timeline, timeline_of
from crescendo.record.manifest import State


@dataclass(frozen=True)
class AnalysisContext:
    """One recording, opened for the analysis."""

    recording: LocatedRecording
    spark: SparkSession
    frames: Frames
    timeline: Timeline
    connections: Connections
    imported_counts: ImportedCounts | None  # counts in place of messages, for an import that has no messages
    full: bool  # whether the caller requested every table

    @property
    def includes_behaviour(self) -> bool:
        """Whether to compute the behaviour tables. After losing a peer, the verdict matters more: only on request."""
        return self.full or self.recording.manifest.state is State.SEALED


def open_context(recording: LocatedRecording, spark: SparkSession, *, full: bool) -> AnalysisContext:
    manifest, timeline = recording.manifest, timeline_of(recording.manifest)
    imported = imported_counts_of(recording, timeline)
    return AnalysisContext(
        recording, spark, frames_of(spark, recording), timeline, connections_of(manifest), imported, full
    )
