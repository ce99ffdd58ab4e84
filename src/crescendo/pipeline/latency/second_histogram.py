"""How are the latencies distributed, second by second?

Counts per log-linear bucket, so that they add up across seconds, peers and runs. `samples` says what is counted.
Response, transfer and lateness belong to the second of the intended time, settle to that of the send time; a range of
settlements weighs as many messages as it covers. Round trips and one-way times come from spans. Negative latencies are
kept.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.model.metrics import SETTLE
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.samples import (
    LATENESS,
    ONE_WAY,
    ROUND_TRIP,
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
from crescendo.pipeline.source.moments import Timeline, deliveries

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
    """The same columns for the lateness of the generator."""
    samples = sent_on_schedule(sent, connections).select(
        *_second_and_phase(timeline, F.col(c.INTENDED_NS)),
        F.lit(LATENESS).alias(c.KIND),
        lateness_ns().alias(c.VALUE_NS),
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
    samples = delivery_samples(received, connections, *_second_and_phase(timeline, F.col(c.INTENDED_NS)))
    counts = _bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS))
    return counts.withColumn(c.KIND, delivery_kind())


def _settle_counts(settled: DataFrame, timeline: Timeline) -> DataFrame:
    samples = settlements(settled).select(
        *_second_and_phase(timeline, F.col(c.SENT_NS)),
        F.lit(SETTLE).alias(c.KIND),
        settle_ns().alias(c.VALUE_NS),
        settled_messages().alias(c.WEIGHT),
    )
    return _bucket_counts(samples, F.sum(c.WEIGHT), F.sum(F.col(c.VALUE_NS) * F.col(c.WEIGHT)))


def _second_and_phase(timeline: Timeline, t_ns: Column) -> tuple[Column, Column]:
    return timeline.second_of(t_ns).alias(c.SECOND), timeline.phase_of(t_ns).alias(c.PHASE)


def _bucket_counts(samples: DataFrame, count: Column, total_ns: Column) -> DataFrame:
    return (
        samples.withColumn(c.BUCKET, bucket_column(F.col(c.VALUE_NS)))
        .groupBy(*_KEYS)
        .agg(*sample_sums(count, total_ns))
    )
