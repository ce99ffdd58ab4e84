"""How did the messages come that an outage had held back?

Looks only at what arrived between the last delivery before a gap and the time when the backlog was gone, receiver by
receiver and in the order of arrival. Held messages come faster than they were meant to: their jitter is negative, and
there are about as many of them as the gap is long in intervals. Inversions are those that came out of order.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.pipeline.behaviour.outages import Outage
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

MAX_OUTAGES = 50
"""The longest ones; a run with more has a system that flickers, and the outages themselves say so."""

_LEAD_NS = 10**9  # of those who share a subscription, most had their last delivery before it was the last of all
_UNTIL_NS, _GAP_END_NS = "until_ns", "gap_end_ns"


def bursts(received: DataFrame, outages: Sequence[Outage], connections: Connections) -> DataFrame:
    """One row per outage and receiver that got something after it."""
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
        F.max(JITTER_NS).alias("max_jitter_ns"),
        (F.max(RECEIVED_NS) - F.min(RECEIVED_NS)).alias("length_ns"),
    ).select(
        connections.name_column(F.col(OUTAGE)[SUBSCRIPTION]).alias(SUBSCRIPTION),
        F.col(OUTAGE)[START_NS].alias(START_NS),
        RECEIVER, MESSAGES, NEGATIVE, INVERSIONS, "max_jitter_ns", "length_ns",
    )  # fmt: skip


def _until_ns(outage: Outage) -> int:
    """Until the backlog was gone, or as long again as the gap."""
    end_ns = outage.start_ns if outage.end_ns is None else outage.end_ns
    return end_ns + (outage.gap_ns if outage.caught_up_ns is None else outage.caught_up_ns)
