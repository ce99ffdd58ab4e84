"""What does every step of an analysis need to know about its recording?

Opens the recording and reads its manifest. Computes nothing.
"""

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from crescendo.pipeline.source.connections import Connections, connections_of
from crescendo.pipeline.source.imported_counts import ImportedCounts, imported_counts_of
from crescendo.pipeline.source.ingest import Frames, LocatedRecording, frames_of
from crescendo.pipeline.source.moments import Timeline, timeline_of
from crescendo.pipeline.source.run_slices import SliceColumns, slice_columns
from crescendo.record.manifest import State


@dataclass(frozen=True)
class AnalysisContext:
    """One recording, opened for the analysis."""

    recording: LocatedRecording
    spark: SparkSession
    timeline: Timeline
    connections: Connections
    imported_counts: ImportedCounts | None  # counts in place of messages, for an import that has no messages
    full: bool  # whether the caller requested every table

    @cached_property
    def frames(self) -> Frames:
        """The messages; no Spark call is made for a run whose messages are scanned with those of others."""
        return frames_of(self.spark, self.recording)

    @cached_property
    def slices(self) -> SliceColumns:
        """By what the latencies of slices are counted apart."""
        return slice_columns(self.recording.manifest)

    @property
    def includes_behaviour(self) -> bool:
        """Whether to compute the behaviour tables. After losing a peer, the verdict matters more: only on request."""
        return self.full or self.recording.manifest.state is State.SEALED

    @property
    def accounts_own_delay(self) -> bool:
        """Whether every sender and receiver kept account of the delay that was its own; before version 0.3 none did."""
        peers = [peer for peer in self.recording.manifest.peers if peer.role in {"sender", "receiver"}]
        return bool(peers) and all(peer.statistics.stalled_ns is not None for peer in peers)


def open_context(recording: LocatedRecording, spark: SparkSession, *, full: bool) -> AnalysisContext:
    manifest, timeline = recording.manifest, timeline_of(recording.manifest)
    imported = imported_counts_of(recording, timeline)
    return AnalysisContext(recording, spark, timeline, connections_of(manifest), imported, full)
