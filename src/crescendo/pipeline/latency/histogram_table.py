"""Which samples are in the table `latency_histogram`?

Those of messages, of the generator's lateness, and of spans that are trips; for an import without messages, its own
counts. Puts them together; `second_histogram` and `imported_counts` count.
"""

from pyspark.sql import DataFrame

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.second_histogram import latency_histogram, lateness_histogram, trip_histogram
from crescendo.pipeline.source.connections import ConnectionColumns
from crescendo.pipeline.source.imported_counts import imported_histogram
from crescendo.pipeline.source.ingest import Frames, frame_of
from crescendo.pipeline.source.moments import MomentColumns
from crescendo.pipeline.source.run_slices import SliceColumns
from crescendo.record.schema import HISTOGRAMS, SPANS


def build_latency_histogram(context: AnalysisContext) -> DataFrame:
    timeline = context.timeline
    counts = message_histogram(context.frames, timeline, context.connections, context.slices)
    if context.recording.files(SPANS):
        trips = trip_histogram(frame_of(context.spark, context.recording, SPANS), timeline)
        counts = counts.unionByName(trips)
    # Next to messages, imported counts would count the same messages twice.
    if context.imported_counts is not None and context.recording.files(HISTOGRAMS):
        counts = counts.unionByName(
            imported_histogram(frame_of(context.spark, context.recording, HISTOGRAMS), timeline)
        )
    # Sorted, so that a reader can go second by second without holding the whole table.
    return counts.sortWithinPartitions(c.SECOND)


def message_histogram(
    frames: Frames, timeline: MomentColumns, connections: ConnectionColumns, slices: SliceColumns
) -> DataFrame:
    """The samples of messages."""
    counts = latency_histogram(frames.received, frames.settled, timeline, connections, slices)
    return counts.unionByName(lateness_histogram(frames.sent, timeline, connections, slices))
