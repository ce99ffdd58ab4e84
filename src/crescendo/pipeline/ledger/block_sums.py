"""What are the checksums of each block of messages, on the sending and the receiving side?

A block is 65,536 consecutive sequence numbers of one sender. One scan counts, sums and hashes both sides of it: the
messages sent and those a subscription received. Count, sum and a plain xor of the numbers are not enough: losing
{1, 4} and duplicating {0, 5} changes none of the three. So the xor is taken over a hash of each number. Only adds up;
`balance` compares.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.source.connections import ConnectionColumns
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import MomentColumns, first_attempts, flagged, within
from crescendo.pipeline.source.per_run import UNKNOWN
from crescendo.record.schema import Flag, Settlement

BLOCK_BITS = 16

SENT, SETTLED, RECEIVED = 0, 1, 2
"""The sides of a block."""

MEASURED, MEASURED_BYTES = "measured", "measured_bytes"
OUT_OF_ORDER, CORRUPT, STRAY = "out_of_order", "corrupt", "stray"
ON_TIME, EDGE = "on_time", "edge"
"""Deliveries that would be measured if sent when they were due, and those at the edge of the measure phase."""

COUNTS = (c.MESSAGES, MEASURED, MEASURED_BYTES, OUT_OF_ORDER, CORRUPT, STRAY, ON_TIME, EDGE)
EXTREMES = (c.FIRST_SEQ, c.LAST_SEQ, c.END_NS)
"""Of messages sent in the measure phase, the first and the last number; of deliveries, the last time."""

EDGE_NS = 100_000_000
"""Arrivals this long after the end of the measure phase belong to its edge."""


def block_sums(frames: Frames, timeline: MomentColumns, connections: ConnectionColumns) -> DataFrame:
    """One row per run, side, subscription, sender and block.

    A sent message counts once, however many subscriptions it is owed to. Rows without a block have block -1:
    settlements by sender, corrupt and stray messages by the subscription that received them.
    """
    received = _received(frames.received, timeline, connections)
    return _sent(frames.sent, timeline).unionByName(received).unionByName(_settled(frames.settled, timeline))


def block_of(seq: Column, bits: int = BLOCK_BITS) -> Column:
    return F.shiftright(seq, bits)


def accepted_ranges(settled: DataFrame) -> DataFrame:
    """The ranges of messages that the system accepted."""
    return settled.where((F.col(c.OUTCOME) == int(Settlement.ACCEPTED)) & (F.col(c.LAST_SEQ) >= F.col(c.FIRST_SEQ)))


def _sent(sent: DataFrame, timeline: MomentColumns) -> DataFrame:
    measured = timeline.measured(F.col(c.SENT_NS))
    blocks = (
        first_attempts(sent)
        .groupBy(*timeline.run_keys, c.SENDER, block_of(F.col(c.SEQ)).alias(c.BLOCK))
        .agg(
            *_checksums(),
            F.count_if(measured).alias(MEASURED),
            F.min(F.when(measured, F.col(c.SEQ))).alias(c.FIRST_SEQ),
            F.max(F.when(measured, F.col(c.SEQ))).alias(c.LAST_SEQ),
        )
    )
    return _side_rows(SENT, blocks, timeline)


def _settled(settled: DataFrame, timeline: MomentColumns) -> DataFrame:
    messages = F.sum(F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1)
    rows = accepted_ranges(settled).groupBy(*timeline.run_keys, c.SENDER).agg(messages.alias(c.MESSAGES))
    return _side_rows(SETTLED, rows, timeline)


def _received(received: DataFrame, timeline: MomentColumns, connections: ConnectionColumns) -> DataFrame:
    unusable = flagged(Flag.CORRUPT | Flag.STRAY)
    measured = timeline.measured(F.col(c.RECEIVED_NS)) & ~unusable
    # As if it had been sent when it was due. Where that is not what delayed it, `corrections` says so.
    on_time = timeline.measured(F.col(c.RECEIVED_NS) - F.greatest(F.col(c.SENT_NS) - F.col(c.INTENDED_NS), F.lit(0)))
    blocks = received.groupBy(
        *timeline.run_keys,
        connections.subscription_column(F.col(c.RECEIVER)).alias(c.SUBSCRIPTION),
        F.when(unusable, F.lit(UNKNOWN)).otherwise(F.col(c.SENDER)).alias(c.SENDER),
        F.when(unusable, F.lit(UNKNOWN)).otherwise(block_of(F.col(c.SEQ))).alias(c.BLOCK),
    ).agg(
        *_checksums(),
        F.count_if(measured).alias(MEASURED),
        F.sum(F.when(measured, F.col(c.SIZE)).otherwise(0)).alias(MEASURED_BYTES),
        F.count_if(flagged(Flag.OUT_OF_ORDER) & ~unusable).alias(OUT_OF_ORDER),
        F.count_if(flagged(Flag.CORRUPT)).alias(CORRUPT),
        F.count_if(flagged(Flag.STRAY)).alias(STRAY),
        F.count_if(on_time & ~unusable).alias(ON_TIME),
        F.sum(F.when(unusable, F.lit(0)).otherwise(_at_edge(timeline))).alias(EDGE),
        F.max(c.RECEIVED_NS).alias(c.END_NS),
    )
    return _side_rows(RECEIVED, blocks, timeline)


def _at_edge(timeline: MomentColumns) -> Column:
    """1 for a message that was due in the measure phase and arrived just after it; -1 for the same at its start."""
    if not timeline.has_measure:
        return F.lit(0)

    def across(edge_ns: Column) -> Column:
        arrived = within(F.col(c.RECEIVED_NS), edge_ns, edge_ns + EDGE_NS)
        return arrived & (F.col(c.INTENDED_NS) < edge_ns)

    entering, leaving = across(timeline.measure_start_ns), across(timeline.measure_end_ns)
    return F.when(leaving, F.lit(1)).when(entering, F.lit(-1)).otherwise(F.lit(0))


def _checksums() -> tuple[Column, Column, Column]:
    # The block fixes the high bits, so the sum needs only the low ones, and it cannot overflow.
    low = F.col(c.SEQ).bitwiseAND(F.lit((1 << BLOCK_BITS) - 1))
    return F.count("*").alias(c.MESSAGES), F.sum(low).alias(c.LOW_SUM), F.bit_xor(F.xxhash64(c.SEQ)).alias(c.HASH)


def _side_rows(side: int, rows: DataFrame, timeline: MomentColumns) -> DataFrame:
    """The columns that all sides share; UNKNOWN and zero where a side does not have them."""

    def column(name: str, kind: str, absent: int) -> Column:
        return (F.col(name) if name in rows.columns else F.lit(absent)).cast(kind).alias(name)

    return rows.select(
        *timeline.run_keys,
        F.lit(side).alias(c.SIDE),
        column(c.SUBSCRIPTION, "int", UNKNOWN),
        column(c.SENDER, "int", UNKNOWN),
        column(c.BLOCK, "long", UNKNOWN),
        *(column(name, "long", 0) for name in (c.LOW_SUM, c.HASH, *COUNTS)),
        *(column(name, "long", UNKNOWN) for name in EXTREMES),
    )
