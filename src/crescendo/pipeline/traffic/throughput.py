"""How many messages and bytes did each connection carry in each second?

Senders by the time of sending, receivers by the time of receipt. Repeated deliveries count: they were carried.
Corrupt and stray messages do not.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    BYTES,
    CONNECTION,
    MESSAGES,
    RECEIVED_NS,
    RECEIVER,
    ROLE,
    SECOND,
    SENDER,
    SENT_NS,
    SIZE,
)
from crescendo.pipeline.source.moments import Phases, deliveries


def throughput(sent: DataFrame, received: DataFrame, timeline: Phases) -> DataFrame:
    """One row per second, role and connection."""
    return _per_second(sent, SENDER, SENT_NS, timeline).unionByName(
        _per_second(deliveries(received), RECEIVER, RECEIVED_NS, timeline)
    )


def _per_second(rows: DataFrame, role: str, t_ns: str, timeline: Phases) -> DataFrame:
    return (
        rows.groupBy(timeline.second_of(F.col(t_ns)).alias(SECOND), F.col(role).cast("int").alias(CONNECTION))
        .agg(F.count("*").alias(MESSAGES), F.sum(SIZE).alias(BYTES))
        .select(SECOND, F.lit(role).alias(ROLE), CONNECTION, MESSAGES, BYTES)
    )
