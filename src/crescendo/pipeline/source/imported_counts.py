"""What can be told of a run whose source kept no messages?

Imports may hold counts over time (`rates`) and bucket counts (`histograms`) instead. Those become throughput and
latencies like any other, as far as they go: a count stands in the second in which its period began, sizes are not
known, and of a sample nothing is known but its bucket. No ledger follows from counts, and none is made up.
"""

from dataclasses import dataclass

import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from crescendo.model.histogram import SUB_BITS, SUB_BUCKETS
from crescendo.pipeline.columns import (
    BUCKET,
    BYTES,
    CONNECTION,
    COUNT,
    KIND,
    MAX_NS,
    MESSAGES,
    MIN_NS,
    PEER,
    PHASE,
    RECEIVER,
    ROLE,
    SECOND,
    SENDER,
    SUM_NS,
    T_NS,
)
from crescendo.pipeline.source.ingest import LocatedRecording
from crescendo.pipeline.source.moments import Phases
from crescendo.record.schema import HISTOGRAMS, RATES, RECEIVED, SENT, SETTLED, SPANS

IMPORTED = "imported"
"""The kind of system that an import names."""

_KEPT = (RATES, HISTOGRAMS, SPANS)
_MESSAGES = {SENT, SETTLED, RECEIVED}


@dataclass(frozen=True)
class ImportedCounts:
    """Which aggregate tables there are instead of messages, and what the rates among them add up to."""

    tables: tuple[str, ...]
    sent: int = 0
    received: int = 0
    measured_sent: int = 0
    measured_received: int = 0

    @property
    def rated(self) -> bool:
        return RATES in self.tables


def imported_counts_of(recording: LocatedRecording, timeline: Phases) -> ImportedCounts | None:
    """None when the recording is no import, or has messages, or had some before a part was damaged, or has nothing."""
    if recording.manifest.system.get("kind") != IMPORTED:
        return None  # who sent nothing has no messages either
    listed = {part.table for part in recording.manifest.files} | {part.table for part in recording.parts}
    kept = tuple(table for table in _KEPT if recording.rows(table))
    if listed & _MESSAGES or not kept:
        return None
    if RATES not in kept:
        return ImportedCounts(kept)
    totals, measured = {SENDER: 0, RECEIVER: 0}, {SENDER: 0, RECEIVER: 0}
    for batch in ds.dataset(recording.local_files(RATES), format="parquet").to_batches(columns=[T_NS, ROLE, MESSAGES]):
        for row in batch.to_pylist():
            if row[ROLE] in totals:
                totals[row[ROLE]] += row[MESSAGES]
                measured[row[ROLE]] += row[MESSAGES] if _measured(timeline, row[T_NS]) else 0
    return ImportedCounts(kept, totals[SENDER], totals[RECEIVER], measured[SENDER], measured[RECEIVER])


def counted_throughput(rates: DataFrame, timeline: Phases) -> DataFrame:
    """The columns of `throughput`. Peers have names and no numbers: they are numbered in the order of the names."""
    number = F.dense_rank().over(Window.partitionBy(ROLE).orderBy(PEER)) - 1
    counts = rates.groupBy(timeline.second_of(F.col(T_NS)).alias(SECOND), ROLE, PEER).agg(
        F.sum(MESSAGES).alias(MESSAGES)
    )
    return counts.select(SECOND, ROLE, number.alias(CONNECTION), MESSAGES, F.lit(0).cast("long").alias(BYTES))


def kept_histogram(histograms: DataFrame, timeline: Phases) -> DataFrame:
    """The columns of `latency_histogram`. A sample is taken for the middle of its bucket, at most 0.4 % wide."""
    bucket = F.col(BUCKET).cast("long")
    negative = bucket < 0
    magnitude = F.when(negative, F.bitwise_not(bucket)).otherwise(bucket)
    # A bucket below zero is the mirror of one above it, with its edges exchanged.
    near_ns, far_ns = _floor_ns(magnitude), _floor_ns(magnitude + 1) - 1
    low_ns = F.when(negative, F.bitwise_not(far_ns)).otherwise(near_ns)
    high_ns = F.when(negative, F.bitwise_not(near_ns)).otherwise(far_ns)
    middle_ns = low_ns + F.shiftright(high_ns - low_ns, 1)
    phase = timeline.phase_name(timeline.phase_of(F.col(T_NS))).alias(PHASE)
    return (
        histograms.where(F.col(COUNT) > 0)
        .groupBy(timeline.second_of(F.col(T_NS)).alias(SECOND), phase, KIND, BUCKET)
        .agg(F.sum(COUNT).alias(COUNT))
        .withColumns({SUM_NS: middle_ns * F.col(COUNT), MIN_NS: low_ns, MAX_NS: high_ns})
    )


def _floor_ns(bucket: Column) -> Column:
    """The smallest value of a bucket from zero up, as `model.histogram` has it."""
    exponent = F.greatest(F.shiftright(bucket, SUB_BITS) - 1, F.lit(0)).cast("int")
    return F.call_function("shiftleft", bucket - exponent * SUB_BUCKETS, exponent)


def _measured(timeline: Phases, t_ns: int) -> bool:
    measure = timeline.measure
    return measure is not None and measure.start_ns <= t_ns < measure.end_ns
