"""How are the latencies distributed, second by second and slice by slice?

Counts per log-linear bucket, so that they add up across seconds, slices and runs. `samples` says what is counted.
Response, transfer and lateness belong to the second of the intended time, settle to that of the send time; a range of
settlements weighs as many messages as it covers. Round trips and one-way times come from spans. Negative latencies are
kept.
"""

from collections.abc import Sequence

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
from crescendo.pipeline.source.connections import ConnectionColumns
from crescendo.pipeline.source.moments import MomentColumns, deliveries
from crescendo.pipeline.source.run_slices import NO_SLICES, SliceColumns

_KEYS = (c.SECOND, c.PHASE, c.KIND, c.BUCKET)
_SUMS = (c.COUNT, c.SUM_NS, c.MIN_NS, c.MAX_NS)
_SLICES = (c.SENDER_GROUP, c.DESTINATION, c.RECEIVER_GROUP)


def latency_histogram(
    received: DataFrame,
    settled: DataFrame,
    timeline: MomentColumns,
    connections: ConnectionColumns,
    slices: SliceColumns,
) -> DataFrame:
    """One row per run, second, phase, kind, slice and bucket."""
    counts = _delivery_counts(deliveries(received), timeline, connections, slices)
    return _with_phase_names(counts.unionByName(_settle_counts(settled, timeline, slices)), timeline)


def lateness_histogram(
    sent: DataFrame, timeline: MomentColumns, connections: ConnectionColumns, slices: SliceColumns
) -> DataFrame:
    """The same columns for the lateness of the generator."""
    samples = sent_on_schedule(sent, connections).select(
        *timeline.run_keys,
        *_second_and_phase(timeline, F.col(c.INTENDED_NS)),
        *slices.keys(receiver=False),
        F.lit(LATENESS).alias(c.KIND),
        lateness_ns().alias(c.VALUE_NS),
    )
    keys = [*timeline.run_keys, *slices.key_names(receiver=False)]
    counts = _bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS), keys)
    return _with_phase_names(_with_slices(counts, timeline, slices.columns(receiver=False)), timeline)


def trip_histogram(spans: DataFrame, timeline: MomentColumns) -> DataFrame:
    """The same columns for the spans that are round trips or one-way times, by their start."""
    samples = spans.where(F.col(c.ACTION).isin(ROUND_TRIP, ONE_WAY)).select(
        *_second_and_phase(timeline, F.col(c.T_NS)),
        F.col(c.ACTION).alias(c.KIND),
        F.col(c.DURATION_NS).alias(c.VALUE_NS),
    )
    counts = _bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS))
    return _with_phase_names(_with_slices(counts, timeline, NO_SLICES.columns()), timeline)


def _with_phase_names(counts: DataFrame, timeline: MomentColumns) -> DataFrame:
    phase = timeline.phase_name(F.col(c.PHASE)).alias(c.PHASE)
    return counts.select(*timeline.run_keys, c.SECOND, phase, c.KIND, c.BUCKET, *_SUMS, *_SLICES)


def _with_slices(counts: DataFrame, timeline: MomentColumns, columns: list[Column]) -> DataFrame:
    return counts.select(*timeline.run_keys, *_KEYS, *_SUMS, *columns)


def _delivery_counts(
    received: DataFrame, timeline: MomentColumns, connections: ConnectionColumns, slices: SliceColumns
) -> DataFrame:
    moments = _second_and_phase(timeline, F.col(c.INTENDED_NS))
    samples = delivery_samples(received, connections, *timeline.run_keys, *moments, *slices.keys())
    counts = _bucket_counts(samples, F.count("*"), F.sum(c.VALUE_NS), [*timeline.run_keys, *slices.key_names()])
    return _with_slices(counts.withColumn(c.KIND, delivery_kind()), timeline, slices.columns())


def _settle_counts(settled: DataFrame, timeline: MomentColumns, slices: SliceColumns) -> DataFrame:
    samples = settlements(settled).select(
        *timeline.run_keys,
        *_second_and_phase(timeline, F.col(c.SENT_NS)),
        *slices.keys(receiver=False),
        F.lit(SETTLE).alias(c.KIND),
        settle_ns().alias(c.VALUE_NS),
        settled_messages().alias(c.WEIGHT),
    )
    total_ns = F.sum(F.col(c.VALUE_NS) * F.col(c.WEIGHT))
    keys = [*timeline.run_keys, *slices.key_names(receiver=False)]
    counts = _bucket_counts(samples, F.sum(c.WEIGHT), total_ns, keys)
    return _with_slices(counts, timeline, slices.columns(receiver=False))


def _second_and_phase(timeline: MomentColumns, t_ns: Column) -> tuple[Column, Column]:
    return timeline.second_of(t_ns).alias(c.SECOND), timeline.phase_of(t_ns).alias(c.PHASE)


def _bucket_counts(samples: DataFrame, count: Column, total_ns: Column, more_keys: Sequence[str] = ()) -> DataFrame:
    return (
        samples.withColumn(c.BUCKET, bucket_column(F.col(c.VALUE_NS)))
        .groupBy(*_KEYS, *more_keys)
        .agg(*sample_sums(count, total_ns))
    )
