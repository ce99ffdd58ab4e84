"""How are the latencies distributed, connection by connection?

The counts of `histogram`, by sender and by receiver instead of by second. A delivery counts once for the connection
that sent it and once for the one that received it. Destinations are sums of these and are made in `latency`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    BUCKET,
    CONNECTION,
    COUNT,
    FIRST_SEQ,
    INTENDED_NS,
    KIND,
    LAST_SEQ,
    MAX_NS,
    MIN_NS,
    OUTCOME,
    PHASE,
    RECEIVED_NS,
    RECEIVER,
    ROLE,
    SENDER,
    SENT_NS,
    SETTLED_NS,
    SUM_NS,
    VALUE_NS,
    WEIGHT,
)
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.histogram import LATENESS, RESPONSE, SETTLE, TRANSFER
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import Phases, deliveries, first_attempts
from crescendo.record.schema import Settlement

_KEYS = (PHASE, KIND, ROLE, CONNECTION, BUCKET)
_SUMS = (COUNT, SUM_NS, MIN_NS, MAX_NS)


def connection_histogram(frames: Frames, timeline: Phases, connections: Connections) -> DataFrame:
    """One row per phase, kind, role, connection and bucket."""
    bounded = connections.bounded_column(F.col(SENDER)) if connections.unbounded else F.lit(True)
    sent = _of_sender(
        first_attempts(frames.sent).where(bounded),
        LATENESS,
        timeline.phase_of(F.col(INTENDED_NS)),
        F.col(SENT_NS) - F.col(INTENDED_NS),
        F.lit(1).cast("long"),
    )
    settled = _of_sender(
        frames.settled.where(F.col(OUTCOME) != int(Settlement.SHED)),
        SETTLE,
        timeline.phase_of(F.col(SENT_NS)),
        F.col(SETTLED_NS) - F.col(SENT_NS),
        F.col(LAST_SEQ) - F.col(FIRST_SEQ) + 1,
    )
    counts = _of_both(deliveries(frames.received), timeline, bounded).unionByName(sent).unionByName(settled)
    return counts.withColumn(PHASE, timeline.phase_name(F.col(PHASE)))


def _of_both(received: DataFrame, timeline: Phases, bounded: Column) -> DataFrame:
    """Counted by pairs of sender and receiver at first: each message is looked at once for both of them."""
    response_ns = F.when(bounded, F.col(RECEIVED_NS) - F.col(INTENDED_NS))
    transfer_ns = F.col(RECEIVED_NS) - F.col(SENT_NS)
    samples = received.select(
        timeline.phase_of(F.col(INTENDED_NS)).alias(PHASE),
        F.col(SENDER).cast("int").alias(SENDER),
        F.col(RECEIVER).cast("int").alias(RECEIVER),
        # The kind stays a number until the counts are small.
        F.stack(F.lit(2), F.lit(0), response_ns, F.lit(1), transfer_ns).alias(KIND, VALUE_NS),
        F.lit(1).cast("long").alias(WEIGHT),
    ).where(F.col(VALUE_NS).isNotNull())
    pairs = _counted(samples, PHASE, KIND, SENDER, RECEIVER, BUCKET)
    roles = pairs.select(
        PHASE,
        F.when(F.col(KIND) == 0, RESPONSE).otherwise(TRANSFER).alias(KIND),
        F.stack(F.lit(2), F.lit(SENDER), F.col(SENDER), F.lit(RECEIVER), F.col(RECEIVER)).alias(ROLE, CONNECTION),
        BUCKET,
        *_SUMS,
    )
    return roles.groupBy(*_KEYS).agg(
        F.sum(COUNT).alias(COUNT), F.sum(SUM_NS).alias(SUM_NS), F.min(MIN_NS).alias(MIN_NS), F.max(MAX_NS).alias(MAX_NS)
    )


def _of_sender(rows: DataFrame, kind: str, phase: Column, value_ns: Column, weight: Column) -> DataFrame:
    samples = rows.select(
        phase.alias(PHASE),
        F.col(SENDER).cast("int").alias(CONNECTION),
        value_ns.alias(VALUE_NS),
        weight.alias(WEIGHT),
    )
    return _counted(samples, PHASE, CONNECTION, BUCKET).select(
        PHASE, F.lit(kind).alias(KIND), F.lit(SENDER).alias(ROLE), CONNECTION, BUCKET, *_SUMS
    )


def _counted(samples: DataFrame, *keys: str) -> DataFrame:
    return (
        samples.withColumn(BUCKET, bucket_column(F.col(VALUE_NS)))
        .groupBy(*keys)
        .agg(
            F.sum(WEIGHT).alias(COUNT),
            F.sum(F.col(VALUE_NS) * F.col(WEIGHT)).alias(SUM_NS),
            F.min(VALUE_NS).alias(MIN_NS),
            F.max(VALUE_NS).alias(MAX_NS),
        )
    )
