"""Which tables are made by reading the whole recording?

Each of them is one job, and all of them run side by side: while one is planned or compiled, another computes. A table
in which there would be nothing to see is not made: no spans, no errors, no inspectors, no job. Latencies by connection
need a scan of their own, so they are made only when everything is asked for.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame

from crescendo.pipeline import columns
from crescendo.pipeline.behaviour.ticks import pulse, ticks_for
from crescendo.pipeline.context import Work
from crescendo.pipeline.latency.connection_histogram import party_histogram
from crescendo.pipeline.latency.histogram import latency_histogram, lateness_histogram, trip_histogram
from crescendo.pipeline.ledger.block_sums import accounts
from crescendo.pipeline.ledger.refusals import any_errors, any_errors_in, errors
from crescendo.pipeline.source.imported_counts import counted_throughput, kept_histogram
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.traffic.readings import metric_columns, reading_summary, readings
from crescendo.pipeline.traffic.spans import span_histogram
from crescendo.pipeline.traffic.throughput import throughput
from crescendo.record.schema import HISTOGRAMS, RATES, READINGS, SETTLED, SPANS

# On the way to other tables; removed when those are written.
ACCOUNTS, PULSE, PARTY_HISTOGRAM = ".accounts", ".pulse", ".party_histogram"


def scans(work: Work) -> dict[str, Callable[[], DataFrame]]:
    """Table -> how to describe it."""
    frames, timeline, parties = work.frames, work.timeline, work.parties
    tables: dict[str, Callable[[], DataFrame]] = {
        columns.HISTOGRAM: lambda: _histogram(work),
        ACCOUNTS: lambda: accounts(frames, timeline, parties),
        columns.THROUGHPUT: lambda: _throughput(work),
    }
    if work.thorough:
        tables[PULSE] = lambda: pulse(frames, ticks_for(timeline, parties), parties)
    if work.full:
        tables[PARTY_HISTOGRAM] = lambda: party_histogram(frames, timeline, parties)
    if _any_errors(work):
        tables[columns.ERRORS] = lambda: errors(frames.settled, timeline)
    if work.recording.files(SPANS):
        spans = frame_of(work.spark, work.recording, SPANS)
        tables[columns.SPAN_HISTOGRAM] = lambda: span_histogram(spans, timeline)
    if looked_at := work.recording.near(READINGS):
        run, recorded = work.recording.manifest.run, frame_of(work.spark, work.recording, READINGS)
        tables[columns.READINGS] = lambda: readings(recorded, run, metric_columns(looked_at))
        tables[columns.READING_SUMMARY] = lambda: reading_summary(recorded, run, timeline)
    return tables


def _histogram(work: Work) -> DataFrame:
    frames, timeline, parties = work.frames, work.timeline, work.parties
    counts = latency_histogram(frames.received, frames.settled, timeline, parties)
    counts = counts.unionByName(lateness_histogram(frames.sent, timeline, parties))
    if work.recording.files(SPANS):
        trips = trip_histogram(frame_of(work.spark, work.recording, SPANS), timeline)
        counts = counts.unionByName(trips)
    # Beside messages they would count them a second time.
    if work.aggregates is not None and work.recording.files(HISTOGRAMS):
        counts = counts.unionByName(kept_histogram(frame_of(work.spark, work.recording, HISTOGRAMS), timeline))
    # In order, so that whoever reads it second by second need not hold it all.
    return counts.sortWithinPartitions(columns.SECOND)


def _throughput(work: Work) -> DataFrame:
    counts = throughput(work.frames.sent, work.frames.received, work.timeline)
    if work.aggregates is not None and work.recording.files(RATES):
        counts = counts.unionByName(
            counted_throughput(frame_of(work.spark, work.recording, RATES), work.timeline)
        )  # fmt: skip
    return counts


def _any_errors(work: Work) -> bool:
    """From the parts themselves, where they are on this machine: asking Spark would be a job of its own."""
    if isinstance(work.recording.place, Directory):
        return any_errors(work.recording.files(SETTLED))
    return any_errors_in(work.frames.settled)
