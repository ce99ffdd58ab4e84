"""What are the checksums of each block of messages, on the sending and the receiving side?

A block is 65,536 consecutive sequence numbers of one sender. One scan counts, sums and hashes both sides of it: the
messages sent and those a subscription received. Count, sum and a plain xor of the numbers are not enough: losing
{1, 4} and duplicating {0, 5} changes none of the three. So the xor is taken over a hash of each number. Only adds up;
`balance` compares.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.source.connections import UNKNOWN, Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import Timeline, first_attempts, flagged
from crescendo.record.schema import Flag, Settlement

BLOCK_BITS = 16

SENT, SETTLED, RECEIVED = 0, 1, 2
"""The sides of a block."""

MEASURED, MEASURED_BYTES = "measured", "measured_bytes"
OUT_OF_ORDER, CORRUPT, STRAY = "out_of_order", "corrupt", "stray"
COUNTS = (c.MESSAGES, MEASURED, MEASURED_BYTES, OUT_OF_ORDER, CORRUPT, STRAY)


def block_sums(frames: Frames, timeline: Timeline, connections: Connections) -> DataFrame:
    """One row per side, subscription, sender and block.

    A sent message counts once, however many subscriptions it is owed to. Rows without a block have block -1:
    settlements by sender, corrupt and stray messages by the subscription that received them.
    """
    received = _received(frames.received, timeline, connections)
    return _sent(frames.sent, timeline).unionByName(received).unionByName(_settled(frames.settled))


def block_of(seq: Column, bits: int = BLOCK_BITS) -> Column:
    return F.shiftright(seq, bits)


def accepted_ranges(settled: DataFrame) -> DataFrame:
    """The ranges of messages that the system accepted."""
    return settled.where((F.col(c.OUTCOME) == int(Settlement.ACCEPTED)) & (F.col(c.LAST_SEQ) >= F.col(c.FIRST_SEQ)))


def _sent(sent: DataFrame, timeline: Timeline) -> DataFrame:
    blocks = (
        first_attempts(sent)
        .groupBy(c.SENDER, block_of(F.col(c.SEQ)).alias(c.BLOCK))
        .agg(*_checksums(), F.count_if(timeline.measured(F.col(c.SENT_NS))).alias(MEASURED))
    )
    return _side_rows(SENT, blocks)


def _settled(settled: DataFrame) -> DataFrame:
    messages = F.sum(F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1)
    return _side_rows(SETTLED, accepted_ranges(settled).groupBy(c.SENDER).agg(messages.alias(c.MESSAGES)))


def _received(received: DataFrame, timeline: Timeline, connections: Connections) -> DataFrame:
    unusable = flagged(Flag.CORRUPT | Flag.STRAY)
    measured = timeline.measured(F.col(c.RECEIVED_NS)) & ~unusable
    blocks = received.groupBy(
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
    )
    return _side_rows(RECEIVED, blocks)


def _checksums() -> tuple[Column, Column, Column]:
    # The block fixes the high bits, so the sum needs only the low ones, and it cannot overflow.
    low = F.col(c.SEQ).bitwiseAND(F.lit((1 << BLOCK_BITS) - 1))
    return F.count("*").alias(c.MESSAGES), F.sum(low).alias(c.LOW_SUM), F.bit_xor(F.xxhash64(c.SEQ)).alias(c.HASH)


def _side_rows(side: int, rows: DataFrame) -> DataFrame:
    """The columns that all sides share; UNKNOWN and zero where a side does not have them."""

    def column(name: str, kind: str, absent: int) -> Column:
        return (F.col(name) if name in rows.columns else F.lit(absent)).cast(kind).alias(name)

    return rows.select(
        F.lit(side).alias(c.SIDE),
        column(c.SUBSCRIPTION, "int", UNKNOWN),
        column(c.SENDER, "int", UNKNOWN),
        column(c.BLOCK, "long", UNKNOWN),
        *(column(name, "long", 0) for name in (c.LOW_SUM, c.HASH, *COUNTS)),
    )
