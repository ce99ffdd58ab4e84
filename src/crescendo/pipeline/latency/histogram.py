"""How are the latencies distributed, second by second?

Counts per log-linear bucket, so that they add up across seconds, peers and runs. Response is measured from the
intended time and transfer from the send time, both placed in time by the intention; settle from the send time, placed
by it, and one range of settlements weighs as many messages as it covers. Lateness is the generator's own: from the
intended time to the send. Round trips and one-way times come from spans. Negative latencies are kept.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    ACTION,
    BUCKET,
    COUNT,
    DURATION_NS,
    FIRST_SEQ,
    INTENDED_NS,
    KIND,
    LAST_SEQ,
    MAX_NS,
    MIN_NS,
    OUTCOME,
    PHASE,
    RECEIVED_NS,
    SECOND,
    SENDER,
    SENT_NS,
    SETTLED_NS,
    SUM_NS,
    T_NS,
    VALUE_NS,
    WEIGHT,
)
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import Phases, deliveries, first_attempts
from crescendo.record.schema import Settlement

RESPONSE, TRANSFER, SETTLE = "response", "transfer", "settle"
LATENESS, ROUND_TRIP, ONE_WAY = "lateness", "round trip", "one way"
_KEYS = (SECOND, PHASE, KIND, BUCKET)


def latency_histogram(received: DataFrame, settled: DataFrame, timeline: Phases, connections: Connections) -> DataFrame:
    """One row per second, phase, kind and bucket."""
    counts = _delivery_counts(deliveries(received), timeline, connections).unionByName(
        _settle_counts(settled, timeline)
    )
    return _told(counts, timeline)


def lateness_histogram(sent: DataFrame, timeline: Phases, connections: Connections) -> DataFrame:
    """The same columns for what the generator was late. Sending again is not late, it is again."""
    sent = first_attempts(sent)
    if connections.unbounded:
        sent = sent.where(connections.bounded_column(F.col(SENDER)))
    samples = sent.select(
        *_when(timeline, F.col(INTENDED_NS)),
        F.lit(LATENESS).alias(KIND),
        (F.col(SENT_NS) - F.col(INTENDED_NS)).alias(VALUE_NS),
    )
    return _told(_counted(samples, F.count("*"), F.sum(VALUE_NS)), timeline)


def trip_histogram(spans: DataFrame, timeline: Phases) -> DataFrame:
    """The same columns for the spans that are round trips or one-way times, by when they began."""
    samples = spans.where(F.col(ACTION).isin(ROUND_TRIP, ONE_WAY)).select(
        *_when(timeline, F.col(T_NS)), F.col(ACTION).alias(KIND), F.col(DURATION_NS).alias(VALUE_NS)
    )
    return _told(_counted(samples, F.count("*"), F.sum(VALUE_NS)), timeline)


def _told(counts: DataFrame, timeline: Phases) -> DataFrame:
    phase = timeline.phase_name(F.col(PHASE)).alias(PHASE)
    return counts.select(SECOND, phase, KIND, BUCKET, COUNT, SUM_NS, MIN_NS, MAX_NS)


def _delivery_counts(received: DataFrame, timeline: Phases, connections: Connections) -> DataFrame:
    # From intended, not sent: a stalled sender must not hide the stall.
    response_ns = F.col(RECEIVED_NS) - F.col(INTENDED_NS)
    if connections.unbounded:
        # Without a schedule nothing was intended: the row gives no sample rather than a wrong one.
        response_ns = F.when(connections.bounded_column(F.col(SENDER)), response_ns)
    transfer_ns = F.col(RECEIVED_NS) - F.col(SENT_NS)
    # Both samples of a row from one scan. The kind stays a number until the counts are small.
    samples = received.select(
        *_when(timeline, F.col(INTENDED_NS)),
        F.stack(F.lit(2), F.lit(0), response_ns, F.lit(1), transfer_ns).alias(KIND, VALUE_NS),
    )
    if connections.unbounded:
        samples = samples.where(F.col(VALUE_NS).isNotNull())
    counts = _counted(samples, F.count("*"), F.sum(VALUE_NS))
    return counts.withColumn(KIND, F.when(F.col(KIND) == 0, RESPONSE).otherwise(TRANSFER))


def _settle_counts(settled: DataFrame, timeline: Phases) -> DataFrame:
    # What the sender's own buffer refused was never sent, so that it took no time.
    samples = settled.where(F.col(OUTCOME) != int(Settlement.SHED)).select(
        *_when(timeline, F.col(SENT_NS)),
        F.lit(SETTLE).alias(KIND),
        (F.col(SETTLED_NS) - F.col(SENT_NS)).alias(VALUE_NS),
        (F.col(LAST_SEQ) - F.col(FIRST_SEQ) + 1).alias(WEIGHT),
    )
    return _counted(samples, F.sum(WEIGHT), F.sum(F.col(VALUE_NS) * F.col(WEIGHT)))


def _when(timeline: Phases, t_ns: Column) -> tuple[Column, Column]:
    return timeline.second_of(t_ns).alias(SECOND), timeline.phase_of(t_ns).alias(PHASE)


def _counted(samples: DataFrame, count: Column, total_ns: Column) -> DataFrame:
    return (
        samples.withColumn(BUCKET, bucket_column(F.col(VALUE_NS)))
        .groupBy(*_KEYS)
        .agg(count.alias(COUNT), total_ns.alias(SUM_NS), F.min(VALUE_NS).alias(MIN_NS), F.max(VALUE_NS).alias(MAX_NS))
    )
