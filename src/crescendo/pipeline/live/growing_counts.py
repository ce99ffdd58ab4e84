"""How does a growing recording become a stream of counts?

One streaming query over the three tables of messages. Parts are renamed into place when they are complete, so every
visible file can be read. A message counts in the period of its own time: the time it was sent, received or settled. A
watermark follows the latest of these times. A message for a period before the watermark is late, and Spark drops it.
Each batch also reports which parts have messages in which periods, so that every dropped message is counted.
"""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from crescendo.model.metrics import RESPONSE, SETTLE
from crescendo.pipeline.columns import (
    BUCKET,
    KIND,
    RECEIVED_NS,
    SENT_NS,
    SETTLED_NS,
    T_NS,
    VALUE_NS,
    WEIGHT,
)
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.samples import (
    delivery_kind,
    delivery_samples,
    sample_sums,
    settle_ns,
    settled_messages,
    settlements,
)
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import deliveries
from crescendo.record.schema import RECEIVED, SENT, SETTLED, spark_ddl

PERIOD, PART, PARTS, MESSAGES, SEEN = "period", "part", "parts", "messages", "seen"
_MOMENT = "moment"
_NS_PER_US = 1000
_FILE = "_metadata.file_name"


@dataclass(frozen=True)
class StreamSetup:
    """The length of a period, and how long to wait for late parts."""

    period_ns: int = 10**9
    late_after_ns: int = 15 * 10**9  # a part is open for up to ten seconds, and peers do not close theirs at once
    realtime_offset_ns: int = 0  # from the recording's clock to the wall clock
    since_ns: int = 0  # on the wall clock; earlier messages are ignored


def growing_counts(spark: SparkSession, run_dir: Path, connections: Connections, setup: StreamSetup) -> DataFrame:
    """A stream of one row per period (its start in µs), kind and bucket: counts so far. The kind `sent` has no value.

    The name of the directory must not contain characters that are special in a pattern.
    """
    samples = (
        _sent(_growing(spark, run_dir, SENT))
        .unionByName(_received(_growing(spark, run_dir, RECEIVED), connections))
        .unionByName(_settled(_growing(spark, run_dir, SETTLED)))
    )
    happened_ns = F.col(T_NS) + F.lit(setup.realtime_offset_ns).cast("long")
    timed = samples.where(happened_ns >= F.lit(setup.since_ns).cast("long")).withColumn(
        _MOMENT, F.timestamp_micros(F.call_function("div", happened_ns, F.lit(_NS_PER_US).cast("long")))
    )
    period = F.window(_MOMENT, f"{setup.period_ns // _NS_PER_US} microseconds")
    watched = (
        timed.withWatermark(_MOMENT, f"{setup.late_after_ns // _NS_PER_US} microseconds")
        .withColumn(PERIOD, period)
        .observe(
            SEEN,
            # The response and the transfer sample of a delivery are one message.
            F.sum(F.when(F.col(KIND) != RESPONSE, F.col(WEIGHT))).alias(MESSAGES),
            # A part is open for seconds, so it has messages in a handful of periods.
            F.collect_set(F.struct(PART, F.unix_micros(F.col(PERIOD).start).alias(PERIOD))).alias(PARTS),
        )
    )
    counts = (
        watched.withColumn(BUCKET, bucket_column(F.col(VALUE_NS)))
        .groupBy(PERIOD, KIND, BUCKET)
        .agg(*sample_sums(F.sum(WEIGHT), F.sum(F.col(VALUE_NS).cast("double") * F.col(WEIGHT))))
    )
    return counts.withColumn(PERIOD, F.unix_micros(F.col(PERIOD).start))


def _growing(spark: SparkSession, run_dir: Path, table: str) -> DataFrame:
    # A pattern, because the directory of a table appears with its first part, or never.
    parts = spark.readStream.schema(spark_ddl(table)).parquet(f"{run_dir}/{table}/*.parquet")
    return parts.withColumn(PART, F.concat(F.lit(f"{table}/"), F.col(_FILE)))


def _sent(sent: DataFrame) -> DataFrame:
    return _samples(sent, F.col(SENT_NS), F.lit(SENT), F.lit(0).cast("long"), F.lit(1))


def _received(received: DataFrame, connections: Connections) -> DataFrame:
    both = delivery_samples(deliveries(received), connections, PART, RECEIVED_NS)
    return _samples(both, F.col(RECEIVED_NS), delivery_kind(), F.col(VALUE_NS), F.lit(1))


def _settled(settled: DataFrame) -> DataFrame:
    return _samples(settlements(settled), F.col(SETTLED_NS), F.lit(SETTLE), settle_ns(), settled_messages())


def _samples(rows: DataFrame, t_ns: Column, kind: Column, value_ns: Column, weight: Column) -> DataFrame:
    return rows.select(
        PART, t_ns.alias(T_NS), kind.alias(KIND), value_ns.alias(VALUE_NS), weight.cast("long").alias(WEIGHT)
    )
