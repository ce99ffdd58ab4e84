"""Which tables are computed by reading the whole recording?

Each table is one job, and all jobs run in parallel: while one is planned or compiled, another computes. A table that
would be empty is not computed: a recording without spans, refusals or readings has no job for them. Latencies by
connection need a scan of their own, so they are computed only on request. Describes the jobs; `job` runs them.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame

from crescendo.pipeline import columns as c
from crescendo.pipeline.behaviour.ticks import tick_counts, ticks_for
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.connection_histogram import connection_histogram
from crescendo.pipeline.latency.second_histogram import latency_histogram, lateness_histogram, trip_histogram
from crescendo.pipeline.ledger.block_sums import block_sums
from crescendo.pipeline.ledger.refusals import any_refusals, any_refusals_in, refusals
from crescendo.pipeline.source.imported_counts import imported_histogram, imported_throughput
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.traffic.readings import metric_columns, reading_summary, readings
from crescendo.pipeline.traffic.spans import span_histogram
from crescendo.pipeline.traffic.throughput import throughput
from crescendo.record.schema import HISTOGRAMS, RATES, READINGS, SETTLED, SPANS


def scans(context: AnalysisContext) -> dict[str, Callable[[], DataFrame]]:
    """Table -> function that builds its DataFrame."""
    frames, timeline, connections = context.frames, context.timeline, context.connections
    tables: dict[str, Callable[[], DataFrame]] = {
        c.HISTOGRAM: lambda: _histogram(context),
        c.BLOCK_SUMS: lambda: block_sums(frames, timeline, connections),
        c.THROUGHPUT: lambda: _throughput(context),
    }
    if context.includes_behaviour:
        tables[c.TICKS] = lambda: tick_counts(frames, ticks_for(timeline, connections), connections)
    if context.full:
        tables[c.CONNECTION_HISTOGRAM] = lambda: connection_histogram(frames, timeline, connections)
    if _any_refusals(context):
        tables[c.ERRORS] = lambda: refusals(frames.settled, timeline)
    if context.recording.files(SPANS):
        spans = frame_of(context.spark, context.recording, SPANS)
        tables[c.SPAN_HISTOGRAM] = lambda: span_histogram(spans, timeline)
    if reading_files := context.recording.local_files(READINGS):
        run, recorded = context.recording.manifest.run, frame_of(context.spark, context.recording, READINGS)
        tables[c.READINGS] = lambda: readings(recorded, run, metric_columns(reading_files))
        tables[c.READING_SUMMARY] = lambda: reading_summary(recorded, run, timeline)
    return tables


def _histogram(context: AnalysisContext) -> DataFrame:
    frames, timeline, connections = context.frames, context.timeline, context.connections
    counts = latency_histogram(frames.received, frames.settled, timeline, connections)
    counts = counts.unionByName(lateness_histogram(frames.sent, timeline, connections))
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


def _throughput(context: AnalysisContext) -> DataFrame:
    counts = throughput(context.frames.sent, context.frames.received, context.timeline)
    if context.imported_counts is not None and context.recording.files(RATES):
        counts = counts.unionByName(
            imported_throughput(frame_of(context.spark, context.recording, RATES), context.timeline)
        )  # fmt: skip
    return counts


def _any_refusals(context: AnalysisContext) -> bool:
    """Read the parts themselves when they are on this machine: a Spark query would be one more job."""
    if isinstance(context.recording.location, Directory):
        return any_refusals(context.recording.files(SETTLED))
    return any_refusals_in(context.frames.settled)
