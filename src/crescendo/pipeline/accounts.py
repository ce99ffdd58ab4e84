"""Which blocks of messages do not add up?

A block is 65,536 consecutive sequence numbers of one sender, as one subscription should have got them. Both sides of
a block are counted, summed and hashed while they are scanned; what agrees in all three is accounted for without ever
bringing its messages together. Count and sum, even with a plain xor of the numbers, can be fooled: lost {1, 4} with
duplicated {0, 5} leaves all of them as they were. The xor is therefore taken over a hash of each number.
Finds the blocks; what is wrong in them is for `discrepancies` to say.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    BLOCK,
    FIRST_SEQ,
    LAST_SEQ,
    OUTCOME,
    RECEIVED_NS,
    RECEIVER,
    SENDER,
    SENT_NS,
    SEQ,
    SIZE,
    SUBSCRIPTION,
)
from crescendo.pipeline.ingest import Frames
from crescendo.pipeline.messages import Timeline, first_attempts, flagged
from crescendo.pipeline.parties import NOBODY, Parties
from crescendo.record.schema import Flag, Settlement

_BLOCK_BITS = 16

SENT, SENT_SUM, SENT_HASH, SENT_MEASURED = "sent", "sent_sum", "sent_hash", "sent_measured"
ARRIVED, ARRIVED_SUM, ARRIVED_HASH = "arrived", "arrived_sum", "arrived_hash"
ARRIVED_MEASURED, BYTES_MEASURED = "arrived_measured", "bytes_measured"
SETTLED, OUT_OF_ORDER, CORRUPT, STRAY = "settled", "out_of_order", "corrupt", "stray"
DIFFERS = "differs"

_SUMS = (
    SENT, SENT_SUM, SENT_MEASURED, ARRIVED, ARRIVED_SUM, ARRIVED_MEASURED, BYTES_MEASURED,
    SETTLED, OUT_OF_ORDER, CORRUPT, STRAY,
)  # fmt: skip
_HASHES = (SENT_HASH, ARRIVED_HASH)

SCHEMA = ", ".join(
    [f"{SUBSCRIPTION} INT", f"{SENDER} INT"]
    + [f"{name} BIGINT" for name in (BLOCK, *_SUMS, *_HASHES)]
    + [f"{DIFFERS} BOOLEAN"]
)


def accounts(frames: Frames, timeline: Timeline, parties: Parties) -> DataFrame:
    """One row per subscription, sender and block, with both sides of the balance.

    What has no block stands under block -1: settlements under their sender, corrupt and stray messages under the
    subscription that got them.
    """
    sides = _sent(frames.sent, timeline, parties).unionByName(_received(frames.received, timeline, parties))
    both = sides.unionByName(_settled(frames.settled))
    # Not a join: adding two sides of which one is zero needs one shuffle of small rows and keeps what only one has.
    return (
        both.groupBy(SUBSCRIPTION, SENDER, BLOCK)
        .agg(
            *(F.sum(name).alias(name) for name in _SUMS),
            *(F.bit_xor(name).alias(name) for name in _HASHES),
        )
        # What nobody owes cannot be missing, and what an unlisted receiver got cannot be judged.
        .withColumn(DIFFERS, (F.col(BLOCK) != NOBODY) & (F.col(SUBSCRIPTION) != NOBODY) & _unequal())
    )


def block_of(seq: Column) -> Column:
    return F.shiftright(seq, _BLOCK_BITS)


def block_edges(block: Column) -> tuple[Column, Column]:
    """The first and the last sequence number of a block."""
    first = F.shiftleft(block, _BLOCK_BITS)
    return first, first + F.lit((1 << _BLOCK_BITS) - 1)


def accepted_ranges(settled: DataFrame) -> DataFrame:
    """The ranges that the system took responsibility for."""
    return settled.where((F.col(OUTCOME) == int(Settlement.ACCEPTED)) & (F.col(LAST_SEQ) >= F.col(FIRST_SEQ)))


def _sent(sent: DataFrame, timeline: Timeline, parties: Parties) -> DataFrame:
    blocks = (
        first_attempts(sent)
        .groupBy(SENDER, block_of(F.col(SEQ)).alias(BLOCK))
        .agg(*_balance(SENT, SENT_SUM, SENT_HASH), F.count_if(timeline.measured(F.col(SENT_NS))).alias(SENT_MEASURED))
    )
    return _filled(blocks.withColumn(SUBSCRIPTION, F.explode(parties.owed_column(F.col(SENDER)))))


def _received(received: DataFrame, timeline: Timeline, parties: Parties) -> DataFrame:
    unusable = flagged(Flag.CORRUPT | Flag.STRAY)
    measured = timeline.measured(F.col(RECEIVED_NS)) & ~unusable
    blocks = received.groupBy(
        parties.subscription_column(F.col(RECEIVER)).alias(SUBSCRIPTION),
        F.when(unusable, F.lit(NOBODY)).otherwise(F.col(SENDER)).alias(SENDER),
        F.when(unusable, F.lit(NOBODY)).otherwise(block_of(F.col(SEQ))).alias(BLOCK),
    ).agg(
        *_balance(ARRIVED, ARRIVED_SUM, ARRIVED_HASH),
        F.count_if(measured).alias(ARRIVED_MEASURED),
        F.sum(F.when(measured, F.col(SIZE)).otherwise(0)).alias(BYTES_MEASURED),
        F.count_if(flagged(Flag.OUT_OF_ORDER) & ~unusable).alias(OUT_OF_ORDER),
        F.count_if(flagged(Flag.CORRUPT)).alias(CORRUPT),
        F.count_if(flagged(Flag.STRAY)).alias(STRAY),
    )
    return _filled(blocks)


def _settled(settled: DataFrame) -> DataFrame:
    accepted = (
        accepted_ranges(settled).groupBy(SENDER).agg(F.sum(F.col(LAST_SEQ) - F.col(FIRST_SEQ) + 1).alias(SETTLED))
    )
    return _filled(accepted.withColumn(SUBSCRIPTION, F.lit(NOBODY)).withColumn(BLOCK, F.lit(NOBODY)))


def _balance(count: str, low_sum: str, hashed: str) -> tuple[Column, Column, Column]:
    # The block fixes the high bits, so the low ones are enough for the sum, and it cannot overflow.
    low = F.col(SEQ).bitwiseAND(F.lit((1 << _BLOCK_BITS) - 1))
    return F.count("*").alias(count), F.sum(low).alias(low_sum), F.bit_xor(F.xxhash64(SEQ)).alias(hashed)


def _filled(rows: DataFrame) -> DataFrame:
    """The columns of an account, zero where a side has nothing to say."""
    return rows.select(
        F.col(SUBSCRIPTION).cast("int"),
        F.col(SENDER).cast("int"),
        F.col(BLOCK).cast("long"),
        *(F.col(name) if name in rows.columns else F.lit(0).cast("long").alias(name) for name in (*_SUMS, *_HASHES)),
    )


def _unequal() -> Column:
    return (
        (F.col(SENT) != F.col(ARRIVED))
        | (F.col(SENT_SUM) != F.col(ARRIVED_SUM))
        | (F.col(SENT_HASH) != F.col(ARRIVED_HASH))
    )
