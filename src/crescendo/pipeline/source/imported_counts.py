"""What can be computed for a run whose source kept no messages?

Imports may hold counts over time (`rates`) and bucket counts (`histograms`) instead. They become throughput and
latencies with less detail: a count belongs to the second in which its period began, sizes are unknown, and only the
bucket of a sample is known. Counts do not give a ledger, and none is invented.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from crescendo.model.histogram import SUB_BITS, SUB_BUCKETS
from crescendo.pipeline import columns as c
from crescendo.pipeline.source.ingest import LocatedRecording
from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.source.run_slices import NO_SLICES
from crescendo.record.schema import HISTOGRAMS, RATES, READINGS, RECEIVED, SENT, SETTLED, SPANS

IMPORTED = "imported"
"""The kind of system in the manifest of an import."""

_COUNT_TABLES = (RATES, HISTOGRAMS, SPANS)
_MESSAGE_TABLES = {SENT, SETTLED, RECEIVED}


@dataclass(frozen=True)
class ImportedCounts:
    """Which tables of counts the recording has instead of messages, and the totals of its rates."""

    tables: tuple[str, ...]
    sent: int = 0
    received: int = 0
    measured_sent: int = 0
    measured_received: int = 0
    source_latency: Mapping[str, float] = field(default_factory=dict)
    """What the source itself said about latency: the median of each of its columns over the periods."""

    @property
    def has_rates(self) -> bool:
        return RATES in self.tables


def imported_counts_of(recording: LocatedRecording, timeline: Timeline) -> ImportedCounts | None:
    """None unless the recording is an import that has counts and lists no messages, damaged parts included."""
    if recording.manifest.system.get("kind") != IMPORTED:
        return None  # a run that sent nothing has no messages either, but is not an import
    listed = {part.table for part in recording.manifest.files} | {part.table for part in recording.parts}
    tables = tuple(table for table in _COUNT_TABLES if recording.rows(table))
    if listed & _MESSAGE_TABLES or not tables:
        return None
    latency = {} if HISTOGRAMS in tables else _source_latency(recording.local_files(READINGS))
    if RATES not in tables:
        return ImportedCounts(tables, source_latency=latency)
    totals, measured = {c.SENDER: 0, c.RECEIVER: 0}, {c.SENDER: 0, c.RECEIVER: 0}
    for batch in ds.dataset(recording.local_files(RATES), format="parquet").to_batches(
        columns=[c.T_NS, c.ROLE, c.MESSAGES]
    ):
        for row in batch.to_pylist():
            if row[c.ROLE] in totals:
                totals[row[c.ROLE]] += row[c.MESSAGES]
                measured[row[c.ROLE]] += row[c.MESSAGES] if _measured(timeline, row[c.T_NS]) else 0
    return ImportedCounts(
        tables, totals[c.SENDER], totals[c.RECEIVER], measured[c.SENDER], measured[c.RECEIVER], latency
    )


def _source_latency(reading_files: list[str]) -> dict[str, float]:
    """Metric -> its median, of the readings that are percentiles of latency per period."""
    if not reading_files:
        return {}
    named = pc.match_substring(pc.field(c.METRIC), "latency", ignore_case=True)
    table = ds.dataset(reading_files, format="parquet").to_table(columns=[c.METRIC, c.VALUE], filter=named)
    values: dict[str, list[float]] = {}
    for row in table.to_pylist():
        values.setdefault(row[c.METRIC], []).append(row[c.VALUE])
    return {metric: median(found) for metric, found in values.items()}


def imported_throughput(rates: DataFrame, timeline: Timeline) -> DataFrame:
    """The columns of `throughput`. Peers have names but no numbers: they are numbered in the order of their names."""
    number = F.dense_rank().over(Window.partitionBy(c.ROLE).orderBy(c.PEER)) - 1
    counts = rates.groupBy(timeline.second_of(F.col(c.T_NS)).alias(c.SECOND), c.ROLE, c.PEER).agg(
        F.sum(c.MESSAGES).alias(c.MESSAGES)
    )
    return counts.select(c.SECOND, c.ROLE, number.alias(c.CONNECTION), c.MESSAGES, F.lit(0).cast("long").alias(c.BYTES))


def imported_histogram(histograms: DataFrame, timeline: Timeline) -> DataFrame:
    """The columns of `latency_histogram`. A sample counts as the middle of its bucket, which is at most 0.4 % wide."""
    bucket = F.col(c.BUCKET).cast("long")
    negative = bucket < 0
    magnitude = F.when(negative, F.bitwise_not(bucket)).otherwise(bucket)
    # A negative bucket mirrors a positive one, with its edges swapped.
    near_ns, far_ns = _floor_ns(magnitude), _floor_ns(magnitude + 1) - 1
    low_ns = F.when(negative, F.bitwise_not(far_ns)).otherwise(near_ns)
    high_ns = F.when(negative, F.bitwise_not(near_ns)).otherwise(far_ns)
    middle_ns = low_ns + F.shiftright(high_ns - low_ns, 1)
    phase = timeline.phase_name(timeline.phase_of(F.col(c.T_NS))).alias(c.PHASE)
    return (
        histograms.where(F.col(c.COUNT) > 0)
        .groupBy(timeline.second_of(F.col(c.T_NS)).alias(c.SECOND), phase, c.KIND, c.BUCKET)
        .agg(F.sum(c.COUNT).alias(c.COUNT))
        .withColumns({c.SUM_NS: middle_ns * F.col(c.COUNT), c.MIN_NS: low_ns, c.MAX_NS: high_ns})
        .select("*", *NO_SLICES.columns())
    )


def _floor_ns(bucket: Column) -> Column:
    """The smallest value of a non-negative bucket, as in `model.histogram`."""
    exponent = F.greatest(F.shiftright(bucket, SUB_BITS) - 1, F.lit(0)).cast("int")
    return F.call_function("shiftleft", bucket - exponent * SUB_BUCKETS, exponent)


def _measured(timeline: Timeline, t_ns: int) -> bool:
    measure = timeline.measure
    return measure is not None and measure.start_ns <= t_ns < measure.end_ns
