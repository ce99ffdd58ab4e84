"""How did the messages held back by an outage arrive?

Examines only deliveries between the last one before the gap and the time when the backlog was drained, per receiver and
in order of arrival. Held messages arrive faster than scheduled: their jitter is negative, and their number is about the
length of the gap in send intervals. Inversions are messages that arrived out of order.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    ARRIVAL,
    INTENDED_NS,
    INVERSIONS,
    JITTER_NS,
    MESSAGES,
    NEGATIVE,
    OUTAGE,
    RECEIVED_NS,
    RECEIVER,
    START_NS,
    SUBSCRIPTION,
)
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.moments import deliveries, flagged
from crescendo.record.schema import Flag
from crescendo.record.table_types import column_name
from crescendo.record.tables import BURSTS, BurstRow, OutageRow

MAX_OUTAGES = 50
"""The longest ones. With more outages, see the `outages` table."""

_LEAD_NS = 10**9  # most receivers of a shared subscription got their last message before the subscription's last one
_UNTIL_NS, _GAP_END_NS = "until_ns", "gap_end_ns"


def bursts(received: DataFrame, outages: Sequence[OutageRow], connections: Connections) -> DataFrame:
    """One row per outage and receiver that received messages after it."""
    ended = [outage for outage in outages if outage.end_ns is not None]
    longest = sorted(ended, key=lambda outage: -outage.gap_ns)[:MAX_OUTAGES]
    numbers = {name: number for number, name in enumerate(connections.subscriptions)}
    windows = F.array(
        *(
            F.struct(
                F.lit(numbers[outage.subscription]).alias(SUBSCRIPTION),
                F.lit(outage.start_ns).cast("long").alias(START_NS),
                F.lit(outage.end_ns).cast("long").alias(_GAP_END_NS),
                F.lit(_until_ns(outage)).cast("long").alias(_UNTIL_NS),
            )
            for outage in longest
        )
    )
    arrived = deliveries(received).select(
        RECEIVER,
        ARRIVAL,
        INTENDED_NS,
        RECEIVED_NS,
        flagged(Flag.OUT_OF_ORDER).alias(INVERSIONS),
        connections.subscription_column(F.col(RECEIVER)).alias(SUBSCRIPTION),
    )
    inside = arrived.withColumn(
        OUTAGE,
        F.explode(
            F.filter(
                windows,
                lambda window: (
                    (window[SUBSCRIPTION] == F.col(SUBSCRIPTION))
                    & (F.col(RECEIVED_NS) >= window[START_NS] - F.lit(_LEAD_NS))
                    & (F.col(RECEIVED_NS) <= window[_UNTIL_NS])
                ),
            )
        ),
    )
    order = Window.partitionBy(OUTAGE, RECEIVER).orderBy(ARRIVAL)
    late_ns = F.col(RECEIVED_NS) - F.col(INTENDED_NS)
    stepped = inside.withColumn(JITTER_NS, late_ns - F.lag(late_ns).over(order))
    after = stepped.where(F.col(RECEIVED_NS) >= F.col(OUTAGE)[_GAP_END_NS])
    return after.groupBy(OUTAGE, F.col(RECEIVER).cast("int").alias(RECEIVER)).agg(
        F.count("*").alias(MESSAGES),
        F.count_if(F.col(JITTER_NS) < 0).alias(NEGATIVE),
        F.count_if(INVERSIONS).alias(INVERSIONS),
        F.max(JITTER_NS).alias(column_name(BurstRow.max_jitter_ns)),
        (F.max(RECEIVED_NS) - F.min(RECEIVED_NS)).alias(column_name(BurstRow.length_ns)),
    ).withColumns(
        {
            SUBSCRIPTION: connections.name_column(F.col(OUTAGE)[SUBSCRIPTION]),
            START_NS: F.col(OUTAGE)[START_NS],
        }
    ).select(*BURSTS.column_names)  # fmt: skip


def _until_ns(outage: OutageRow) -> int:
    """When the backlog was drained; if that is unknown, one more gap length after the end of the gap."""
    end_ns = outage.start_ns if outage.end_ns is None else outage.end_ns
    return end_ns + (outage.gap_ns if outage.caught_up_ns is None else outage.caught_up_ns)
