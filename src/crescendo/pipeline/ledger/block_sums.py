"""What does each block of messages add up to, on either side?

A block is 65,536 consecutive sequence numbers of one sender. Both sides of it, what was sent and what a subscription
got, are counted, summed and hashed while they are scanned. Count and sum, even with a plain xor of the numbers, can
be fooled: lost {1, 4} with duplicated {0, 5} leaves all three as they were. The xor is therefore taken over a hash of
each number. Only adds up; `balance` compares.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    BLOCK,
    FIRST_SEQ,
    HASH,
    LAST_SEQ,
    LOW_SUM,
    MESSAGES,
    OUTCOME,
    RECEIVED_NS,
    RECEIVER,
    SENDER,
    SENT_NS,
    SEQ,
    SIDE,
    SIZE,
    SUBSCRIPTION,
)
from crescendo.pipeline.source.connections import NOBODY, Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import Phases, first_attempts, flagged
from crescendo.record.schema import Flag, Settlement

BLOCK_BITS = 16

SENT, SETTLED, RECEIVED = 0, 1, 2
"""The sides of an account."""

MEASURED, MEASURED_BYTES = "measured", "measured_bytes"
OUT_OF_ORDER, CORRUPT, STRAY = "out_of_order", "corrupt", "stray"
COUNTS = (MESSAGES, MEASURED, MEASURED_BYTES, OUT_OF_ORDER, CORRUPT, STRAY)


def block_sums(frames: Frames, timeline: Phases, connections: Connections) -> DataFrame:
    """One row per side, subscription, sender and block.

    What was sent stands there once, whatever it is owed to. What has no block stands under block -1: settlements
    under their sender, corrupt and stray messages under the subscription that got them.
    """
    received = _received(frames.received, timeline, connections)
    return _sent(frames.sent, timeline).unionByName(received).unionByName(_settled(frames.settled))


def block_of(seq: Column, bits: int = BLOCK_BITS) -> Column:
    return F.shiftright(seq, bits)


def accepted_ranges(settled: DataFrame) -> DataFrame:
    """The ranges that the system took responsibility for."""
    return settled.where((F.col(OUTCOME) == int(Settlement.ACCEPTED)) & (F.col(LAST_SEQ) >= F.col(FIRST_SEQ)))


def _sent(sent: DataFrame, timeline: Phases) -> DataFrame:
    blocks = (
        first_attempts(sent)
        .groupBy(SENDER, block_of(F.col(SEQ)).alias(BLOCK))
        .agg(*_checksums(), F.count_if(timeline.measured(F.col(SENT_NS))).alias(MEASURED))
    )
    return _account(SENT, blocks)


def _settled(settled: DataFrame) -> DataFrame:
    messages = F.sum(F.col(LAST_SEQ) - F.col(FIRST_SEQ) + 1)
    return _account(SETTLED, accepted_ranges(settled).groupBy(SENDER).agg(messages.alias(MESSAGES)))


def _received(received: DataFrame, timeline: Phases, connections: Connections) -> DataFrame:
    unusable = flagged(Flag.CORRUPT | Flag.STRAY)
    measured = timeline.measured(F.col(RECEIVED_NS)) & ~unusable
    blocks = received.groupBy(
        connections.subscription_column(F.col(RECEIVER)).alias(SUBSCRIPTION),
        F.when(unusable, F.lit(NOBODY)).otherwise(F.col(SENDER)).alias(SENDER),
        F.when(unusable, F.lit(NOBODY)).otherwise(block_of(F.col(SEQ))).alias(BLOCK),
    ).agg(
        *_checksums(),
        F.count_if(measured).alias(MEASURED),
        F.sum(F.when(measured, F.col(SIZE)).otherwise(0)).alias(MEASURED_BYTES),
        F.count_if(flagged(Flag.OUT_OF_ORDER) & ~unusable).alias(OUT_OF_ORDER),
        F.count_if(flagged(Flag.CORRUPT)).alias(CORRUPT),
        F.count_if(flagged(Flag.STRAY)).alias(STRAY),
    )
    return _account(RECEIVED, blocks)


def _checksums() -> tuple[Column, Column, Column]:
    # The block fixes the high bits, so the low ones are enough for the sum, and it cannot overflow.
    low = F.col(SEQ).bitwiseAND(F.lit((1 << BLOCK_BITS) - 1))
    return F.count("*").alias(MESSAGES), F.sum(low).alias(LOW_SUM), F.bit_xor(F.xxhash64(SEQ)).alias(HASH)


def _account(side: int, rows: DataFrame) -> DataFrame:
    """The columns of an account: nobody and zero where a side has nothing to say."""

    def column(name: str, kind: str, absent: int) -> Column:
        return (F.col(name) if name in rows.columns else F.lit(absent)).cast(kind).alias(name)

    return rows.select(
        F.lit(side).alias(SIDE),
        column(SUBSCRIPTION, "int", NOBODY),
        column(SENDER, "int", NOBODY),
        column(BLOCK, "long", NOBODY),
        *(column(name, "long", 0) for name in (LOW_SUM, HASH, *COUNTS)),
    )
