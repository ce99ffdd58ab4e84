"""How many messages and bytes did each connection carry in each second?

Counts senders by send time and receivers by receive time. Redeliveries count, because the system carried them.
Corrupt and stray messages do not.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.source.imported_counts import imported_throughput
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.source.moments import MomentColumns, deliveries
from crescendo.record.schema import RATES


def build_throughput(context: AnalysisContext) -> DataFrame:
    counts = throughput(context.frames.sent, context.frames.received, context.timeline)
    # Next to messages, imported counts would count the same messages twice.
    if context.imported_counts is not None and context.recording.files(RATES):
        rates = frame_of(context.spark, context.recording, RATES)
        counts = counts.unionByName(imported_throughput(rates, context.timeline))
    return counts


def throughput(sent: DataFrame, received: DataFrame, timeline: MomentColumns) -> DataFrame:
    """One row per run, second, role and connection."""
    return _per_second(sent, c.SENDER, c.SENT_NS, timeline).unionByName(
        _per_second(deliveries(received), c.RECEIVER, c.RECEIVED_NS, timeline)
    )


def _per_second(rows: DataFrame, role: str, t_ns: str, timeline: MomentColumns) -> DataFrame:
    return (
        rows.groupBy(
            *timeline.run_keys,
            timeline.second_of(F.col(t_ns)).alias(c.SECOND),
            F.col(role).cast("int").alias(c.CONNECTION),
        )
        .agg(F.count("*").alias(c.MESSAGES), F.sum(c.SIZE).alias(c.BYTES))
        .select(*timeline.run_keys, c.SECOND, F.lit(role).alias(c.ROLE), c.CONNECTION, c.MESSAGES, c.BYTES)
    )
