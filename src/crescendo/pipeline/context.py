"""What does every step of an analysis need to know about its recording?"""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from crescendo.pipeline.source.connections import Connections, connections_of
from crescendo.pipeline.source.imported_counts import ImportedCounts, imported_counts_of
from crescendo.pipeline.source.ingest import Frames, LocatedRecording, frames_of
from crescendo.pipeline.source.moments import Phases, timeline_of
from crescendo.record.manifest import State


@dataclass(frozen=True)
class AnalysisContext:
    """One recording, opened for the analysis."""

    recording: LocatedRecording
    spark: SparkSession
    frames: Frames
    timeline: Phases
    connections: Connections
    aggregates: ImportedCounts | None  # what there is instead of messages, in an import that has none
    full: bool  # whether everything was asked for

    @property
    def thorough(self) -> bool:
        """Who lost a peer wants to know that at once; how the rest of such a run behaved can be asked for."""
        return self.full or self.recording.manifest.state is State.SEALED


def open_context(recording: LocatedRecording, spark: SparkSession, *, full: bool) -> AnalysisContext:
    manifest, timeline = recording.manifest, timeline_of(recording.manifest)
    kept = imported_counts_of(recording, timeline)
    return AnalysisContext(
        recording, spark, frames_of(spark, recording), timeline, connections_of(manifest), kept, full
    )
