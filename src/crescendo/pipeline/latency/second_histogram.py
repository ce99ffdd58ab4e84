"""How are the latencies distributed, second by second?

Counts per log-linear bucket, so that they add up across seconds, peers and runs. Response runs from the intended time
and transfer from the send time; both belong to the second of the intended time. Settle runs from the send time and
belongs to its second; a range of settlements weighs as many messages as it covers. Lateness is the generator's own:
from the intended time to the send. Round trips and one-way times come from spans. Negative latencies are kept.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import Timeline, deliveries, first_attempts
from crescendo.record.schema import Settlement

RESPONSE, TRANSFER, SETTLE = "response", "transfer", "settle"
LATENESS, ROUND_TRIP, ONE_WAY = "lateness", "round trip", "one way"
_KEYS = (c.SECOND, c.PHASE, c.KIND, c.BUCKET)


def latency_histogram(
    received: DataFrame, settled: DataFrame, timeline: Timeline, connections: Connections
) -> DataFrame:
    """One row per second, phase, kind and bucket."""
    counts = _delivery_counts(deliveries(received), timeline, connections).unionByName(
        _settle_counts(settled, timeline)
    )
    return _with_phase_names(counts, timeline)


def lateness_histogram(sent: DataFrame, timeline: Timeline, connections: Connections) -> DataFrame:
    """The same columns for the lateness of the generator. Only first attempts count: a resend is not late."""
    sent = first_attempts(sent)
    if connections.unbounded:
        sent = sent.where(connections.bounded_column(F.col(c.SENDER)))
    samples = sent.select(
        *_second_and_phase(timeline, F.col(c.INTENDED_NS)),
        F.lit(LATENESS).alias(c.KIND),
        (F.col(c.SENT_NS) - F.col(c.INTENDED_NS)).alias(c.VALUE_NS),
    )
    return _with_phase_names(_bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS)), timeline)


def trip_histogram(spans: DataFrame, timeline: Timeline) -> DataFrame:
    """The same columns for the spans that are round trips or one-way times, by their start."""
    samples = spans.where(F.col(c.ACTION).isin(ROUND_TRIP, ONE_WAY)).select(
        *_second_and_phase(timeline, F.col(c.T_NS)),
        F.col(c.ACTION).alias(c.KIND),
        F.col(c.DURATION_NS).alias(c.VALUE_NS),
    )
    return _with_phase_names(_bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS)), timeline)


def _with_phase_names(counts: DataFrame, timeline: Timeline) -> DataFrame:
    phase = timeline.phase_name(F.col(c.PHASE)).alias(c.PHASE)
    return counts.select(c.SECOND, phase, c.KIND, c.BUCKET, c.COUNT, c.SUM_NS, c.MIN_NS, c.MAX_NS)


def _delivery_counts(received: DataFrame, timeline: Timeline, connections: Connections) -> DataFrame:
    # From intended, not sent: a stalled sender must not hide the stall.
    response_ns = F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)
    if connections.unbounded:
        # Without a schedule there is no intended time: no sample is better than a wrong one.
        response_ns = F.when(connections.bounded_column(F.col(c.SENDER)), response_ns)
    transfer_ns = F.col(c.RECEIVED_NS) - F.col(c.SENT_NS)
    # One scan gives both samples of a row. The kind stays a number until the counts are small.
    samples = received.select(
        *_second_and_phase(timeline, F.col(c.INTENDED_NS)),
        F.stack(F.lit(2), F.lit(0), response_ns, F.lit(1), transfer_ns).alias(c.KIND, c.VALUE_NS),
    )
    if connections.unbounded:
        samples = samples.where(F.col(c.VALUE_NS).isNotNull())
    counts = _bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS))
    return counts.withColumn(c.KIND, F.when(F.col(c.KIND) == 0, RESPONSE).otherwise(TRANSFER))


def _settle_counts(settled: DataFrame, timeline: Timeline) -> DataFrame:
    # A message shed by the sender's own buffer was never sent, so it has no settle time.
    samples = settled.where(F.col(c.OUTCOME) != int(Settlement.SHED)).select(
        *_second_and_phase(timeline, F.col(c.SENT_NS)),
        F.lit(SETTLE).alias(c.KIND),
        (F.col(c.SETTLED_NS) - F.col(c.SENT_NS)).alias(c.VALUE_NS),
        (F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1).alias(c.WEIGHT),
    )
    return _bucket_counts(samples, F.sum(c.WEIGHT), F.sum(F.col(c.VALUE_NS) * F.col(c.WEIGHT)))


def _second_and_phase(timeline: Timeline, t_ns: Column) -> tuple[Column, Column]:
    return timeline.second_of(t_ns).alias(c.SECOND), timeline.phase_of(t_ns).alias(c.PHASE)


def _bucket_counts(samples: DataFrame, count: Column, total_ns: Column) -> DataFrame:
    return (
        samples.withColumn(c.BUCKET, bucket_column(F.col(c.VALUE_NS)))
        .groupBy(*_KEYS)
        .agg(
            count.alias(c.COUNT),
            total_ns.alias(c.SUM_NS),
            F.min(c.VALUE_NS).alias(c.MIN_NS),
            F.max(c.VALUE_NS).alias(c.MAX_NS),
        )
    )
