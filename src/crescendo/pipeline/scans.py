"""Which tables are made by reading the whole recording?

Each of them is one job, and all of them run side by side: while one is planned or compiled, another computes. A table
in which there would be nothing to see is not made: no spans, no errors, no inspectors, no job. Latencies by connection
need a scan of their own, so they are made only when everything is asked for.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame

from crescendo.pipeline import columns
from crescendo.pipeline.behaviour.ticks import tick_counts, ticks_for
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.connection_histogram import connection_histogram
from crescendo.pipeline.latency.histogram import latency_histogram, lateness_histogram, trip_histogram
from crescendo.pipeline.ledger.block_sums import block_sums
from crescendo.pipeline.ledger.refusals import any_refusals, any_refusals_in, refusals
from crescendo.pipeline.source.imported_counts import counted_throughput, kept_histogram
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.traffic.readings import metric_columns, reading_summary, readings
from crescendo.pipeline.traffic.spans import span_histogram
from crescendo.pipeline.traffic.throughput import throughput
from crescendo.record.schema import HISTOGRAMS, RATES, READINGS, SETTLED, SPANS

# On the way to other tables; removed when those are written.
ACCOUNTS, PULSE, PARTY_HISTOGRAM = ".accounts", ".pulse", ".party_histogram"


def scans(context: AnalysisContext) -> dict[str, Callable[[], DataFrame]]:
    """Table -> how to describe it."""
    frames, timeline, connections = context.frames, context.timeline, context.connections
    tables: dict[str, Callable[[], DataFrame]] = {
        columns.HISTOGRAM: lambda: _histogram(context),
        ACCOUNTS: lambda: block_sums(frames, timeline, connections),
        columns.THROUGHPUT: lambda: _throughput(context),
    }
    if context.thorough:
        tables[PULSE] = lambda: tick_counts(frames, ticks_for(timeline, connections), connections)
    if context.full:
        tables[PARTY_HISTOGRAM] = lambda: connection_histogram(frames, timeline, connections)
    if _any_refusals(context):
        tables[columns.ERRORS] = lambda: refusals(frames.settled, timeline)
    if context.recording.files(SPANS):
        spans = frame_of(context.spark, context.recording, SPANS)
        tables[columns.SPAN_HISTOGRAM] = lambda: span_histogram(spans, timeline)
    if looked_at := context.recording.local_files(READINGS):
        run, recorded = context.recording.manifest.run, frame_of(context.spark, context.recording, READINGS)
        tables[columns.READINGS] = lambda: readings(recorded, run, metric_columns(looked_at))
        tables[columns.READING_SUMMARY] = lambda: reading_summary(recorded, run, timeline)
    return tables


def _histogram(context: AnalysisContext) -> DataFrame:
    frames, timeline, connections = context.frames, context.timeline, context.connections
    counts = latency_histogram(frames.received, frames.settled, timeline, connections)
    counts = counts.unionByName(lateness_histogram(frames.sent, timeline, connections))
    if context.recording.files(SPANS):
        trips = trip_histogram(frame_of(context.spark, context.recording, SPANS), timeline)
        counts = counts.unionByName(trips)
    # Beside messages they would count them a second time.
    if context.aggregates is not None and context.recording.files(HISTOGRAMS):
        counts = counts.unionByName(kept_histogram(frame_of(context.spark, context.recording, HISTOGRAMS), timeline))
    # In order, so that whoever reads it second by second need not hold it all.
    return counts.sortWithinPartitions(columns.SECOND)


def _throughput(context: AnalysisContext) -> DataFrame:
    counts = throughput(context.frames.sent, context.frames.received, context.timeline)
    if context.aggregates is not None and context.recording.files(RATES):
        counts = counts.unionByName(
            counted_throughput(frame_of(context.spark, context.recording, RATES), context.timeline)
        )  # fmt: skip
    return counts


def _any_refusals(context: AnalysisContext) -> bool:
    """From the parts themselves, where they are on this machine: asking Spark would be a job of its own."""
    if isinstance(context.recording.place, Directory):
        return any_refusals(context.recording.files(SETTLED))
    return any_refusals_in(context.frames.settled)
