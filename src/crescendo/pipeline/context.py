"""What does every step of an analysis need to know about its recording?"""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from crescendo.pipeline.source.connections import Parties, parties_of
from crescendo.pipeline.source.imported_counts import Aggregates, aggregates_of
from crescendo.pipeline.source.ingest import Frames, Placed, frames_of
from crescendo.pipeline.source.moments import Timeline, timeline_of
from crescendo.record.manifest import State


@dataclass(frozen=True)
class Work:
    """One recording, opened for the analysis."""

    recording: Placed
    spark: SparkSession
    frames: Frames
    timeline: Timeline
    parties: Parties
    aggregates: Aggregates | None  # what there is instead of messages, in an import that has none
    full: bool  # whether everything was asked for

    @property
    def thorough(self) -> bool:
        """Who lost a peer wants to know that at once; how the rest of such a run behaved can be asked for."""
        return self.full or self.recording.manifest.state is State.SEALED


def work_on(recording: Placed, spark: SparkSession, *, full: bool) -> Work:
    manifest, timeline = recording.manifest, timeline_of(recording.manifest)
    kept = aggregates_of(recording, timeline)
    return Work(recording, spark, frames_of(spark, recording), timeline, parties_of(manifest), kept, full)
