"""How are the latencies distributed, connection by connection?

The counts of `second_histogram`, by sender and by receiver instead of by second. A delivery counts once for the
connection that sent it and once for the one that received it. `table` adds these up to destinations.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.model.metrics import SETTLE
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.samples import (
    LATENESS,
    delivery_kind,
    delivery_samples,
    lateness_ns,
    sample_sums,
    sent_on_schedule,
    settle_ns,
    settled_messages,
    settlements,
)
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import Timeline, deliveries

_KEYS = (c.PHASE, c.KIND, c.ROLE, c.CONNECTION, c.BUCKET)
_SUMS = (c.COUNT, c.SUM_NS, c.MIN_NS, c.MAX_NS)


def connection_histogram(frames: Frames, timeline: Timeline, connections: Connections) -> DataFrame:
    """One row per phase, kind, role, connection and bucket."""
    sent = _sender_counts(
        sent_on_schedule(frames.sent, connections),
        LATENESS,
        timeline.phase_of(F.col(c.INTENDED_NS)),
        lateness_ns(),
        F.lit(1).cast("long"),
    )
    settled = _sender_counts(
        settlements(frames.settled),
        SETTLE,
        timeline.phase_of(F.col(c.SENT_NS)),
        settle_ns(),
        settled_messages(),
    )
    counts = _delivery_counts(deliveries(frames.received), timeline, connections).unionByName(sent).unionByName(settled)
    return counts.withColumn(c.PHASE, timeline.phase_name(F.col(c.PHASE)))


def _delivery_counts(received: DataFrame, timeline: Timeline, connections: Connections) -> DataFrame:
    """Count by pair of sender and receiver first: one pass over the messages serves both roles."""
    samples = delivery_samples(
        received,
        connections,
        timeline.phase_of(F.col(c.INTENDED_NS)).alias(c.PHASE),
        F.col(c.SENDER).cast("int").alias(c.SENDER),
        F.col(c.RECEIVER).cast("int").alias(c.RECEIVER),
        F.lit(1).cast("long").alias(c.WEIGHT),
    )
    pairs = _bucket_counts(samples, c.PHASE, c.KIND, c.SENDER, c.RECEIVER, c.BUCKET)
    roles = pairs.select(
        c.PHASE,
        delivery_kind().alias(c.KIND),
        F.stack(F.lit(2), F.lit(c.SENDER), F.col(c.SENDER), F.lit(c.RECEIVER), F.col(c.RECEIVER)).alias(
            c.ROLE, c.CONNECTION
        ),
        c.BUCKET,
        *_SUMS,
    )
    return roles.groupBy(*_KEYS).agg(
        F.sum(c.COUNT).alias(c.COUNT),
        F.sum(c.SUM_NS).alias(c.SUM_NS),
        F.min(c.MIN_NS).alias(c.MIN_NS),
        F.max(c.MAX_NS).alias(c.MAX_NS),
    )


def _sender_counts(rows: DataFrame, kind: str, phase: Column, value_ns: Column, weight: Column) -> DataFrame:
    samples = rows.select(
        phase.alias(c.PHASE),
        F.col(c.SENDER).cast("int").alias(c.CONNECTION),
        value_ns.alias(c.VALUE_NS),
        weight.alias(c.WEIGHT),
    )
    return _bucket_counts(samples, c.PHASE, c.CONNECTION, c.BUCKET).select(
        c.PHASE, F.lit(kind).alias(c.KIND), F.lit(c.SENDER).alias(c.ROLE), c.CONNECTION, c.BUCKET, *_SUMS
    )


def _bucket_counts(samples: DataFrame, *keys: str) -> DataFrame:
    return (
        samples.withColumn(c.BUCKET, bucket_column(F.col(c.VALUE_NS)))
        .groupBy(*keys)
        .agg(*sample_sums(F.sum(c.WEIGHT), F.sum(F.col(c.VALUE_NS) * F.col(c.WEIGHT))))
    )
