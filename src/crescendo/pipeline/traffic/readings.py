"""What did the inspectors read, and what is the trend of each metric?

Turns the long form of a recording (one row per value) into one row per poll and entity, with one column per metric, and
into one summary row per metric with its mean, peak and trend. The trend is a least-squares line through the measure
phase: a metric that grows steadily there may be a leak. Judges nothing; `inspector_gaps` lists the failed polls.
"""

from collections import Counter
from collections.abc import Iterable

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import ENTITY, METRIC, RUN, SOURCE, T_NS, VALUE
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.source.moments import Timeline
from crescendo.record.schema import READINGS as RECORDED_READINGS
from crescendo.record.table_types import column_name
from crescendo.record.tables import READING_SUMMARY, READINGS, ReadingSummaryRow

MAX_METRICS = 400
"""The most metric columns. The metrics read most often keep theirs; the summary has a row for every metric."""

TREND_SAMPLES = 3
"""A line always fits two points, so it says nothing about them."""

_KEYS = tuple(READINGS.column_names)
_SAMPLES, _FIRST, _LAST, _MIN, _MEAN, _PEAK, _SLOPE, _R2 = (
    column_name(ReadingSummaryRow.samples),
    column_name(ReadingSummaryRow.first),
    column_name(ReadingSummaryRow.last),
    column_name(ReadingSummaryRow.min),
    column_name(ReadingSummaryRow.mean),
    column_name(ReadingSummaryRow.peak),
    column_name(ReadingSummaryRow.slope),
    column_name(ReadingSummaryRow.r2),
)


def build_readings(context: AnalysisContext) -> DataFrame | None:
    """None for a recording without readings."""
    files = context.recording.local_files(RECORDED_READINGS)
    if not files:
        return None
    recorded = frame_of(context.spark, context.recording, RECORDED_READINGS)
    return readings(recorded, context.recording.manifest.run, metric_columns(files))


def build_reading_summary(context: AnalysisContext) -> DataFrame | None:
    """None for a recording without readings."""
    if not context.recording.files(RECORDED_READINGS):
        return None
    recorded = frame_of(context.spark, context.recording, RECORDED_READINGS)
    return reading_summary(recorded, context.recording.manifest.run, context.timeline)


def metric_columns(files: Iterable[str]) -> dict[str, str]:
    """Metric -> column of the wide table, read from the parts themselves: a Spark query would be one more job."""
    counts: Counter[str] = Counter()
    for file in files:
        for batch in pq.ParquetFile(file, read_dictionary=[METRIC]).iter_batches(columns=[METRIC]):
            for entry in batch.column(0).value_counts():
                counts[entry["values"].as_py()] += entry["counts"].as_py()
    kept = sorted(sorted(counts), key=lambda metric: -counts[metric])[:MAX_METRICS]
    taken = {key.lower() for key in _KEYS}
    columns: dict[str, str] = {}
    for metric in sorted(kept):
        # Spark ignores case in column names, but management interfaces do not.
        column, number = metric or "_", 1
        while column.lower() in taken:
            number += 1
            column = f"{metric}_{number}"
        taken.add(column.lower())
        columns[metric] = column
    return columns


def readings(recorded: DataFrame, run: str, metrics: dict[str, str]) -> DataFrame:
    """One row per run, source, entity and poll. Metrics that were not read are null."""
    return (
        recorded.where(F.col(METRIC).isin(list(metrics)))
        .groupBy(F.lit(run).alias(RUN), SOURCE, ENTITY, T_NS)
        .pivot(METRIC, list(metrics))
        .agg(F.max(VALUE))
        .toDF(*_KEYS, *metrics.values())
    )


def reading_summary(recorded: DataFrame, run: str, timeline: Timeline) -> DataFrame:
    """One row per run, source, entity and metric, computed over the measure phase.

    A metric read only outside it has 0 samples and nulls. Slope and r2 need three samples; a value that never changed
    has slope 0 and no r2, because there is no variation to explain.
    """
    measured = timeline.measured(F.col(T_NS)) & _finite(F.col(VALUE))
    value = F.when(measured, F.col(VALUE))
    # Seconds since the origin: squares of nanoseconds since boot would leave no digits for the slope.
    second = (F.col(T_NS) - F.lit(timeline.origin_ns).cast("long")) / F.lit(1e9)
    enough, varied = F.col(_SAMPLES) >= TREND_SAMPLES, F.col(_MIN) < F.col(_PEAK)
    # Sums of floats depend on their order: with each metric sorted in one partition, they are the same everywhere.
    ordered = recorded.repartition(SOURCE, ENTITY, METRIC).sortWithinPartitions(SOURCE, ENTITY, METRIC, T_NS, VALUE)
    return (
        ordered.groupBy(F.lit(run).alias(RUN), SOURCE, ENTITY, METRIC)
        .agg(
            F.count(value).alias(_SAMPLES),
            F.min_by(value, F.when(measured, F.col(T_NS))).alias(_FIRST),
            F.max_by(value, F.when(measured, F.col(T_NS))).alias(_LAST),
            F.min(value).alias(_MIN),
            F.avg(value).alias(_MEAN),
            F.max(value).alias(_PEAK),
            F.regr_slope(value, second).alias(_SLOPE),
            F.regr_r2(value, second).alias(_R2),
        )
        .withColumn(_SLOPE, F.when(enough, F.col(_SLOPE)))
        .withColumn(_R2, F.when(enough & varied, F.col(_R2)))
        .select(*READING_SUMMARY.column_names)
    )


def _finite(value: Column) -> Column:
    return ~F.isnan(value) & (F.abs(value) < F.lit(float("inf")))
