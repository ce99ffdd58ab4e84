"""Which segments of a suspect block do not balance?

One lost message makes 65,536 others suspect. Splits suspect blocks into segments of 256 numbers and balances those in
one more scan, without a join of messages: a segment that agrees in count, sum and hash is cleared. With a scattered
loss in every block, one message in 256 then remains to be compared, and not all of them. Names no messages.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import BLOCK, HASH, LOW_SUM, MESSAGES, RECEIVER, SENDER, SEQ, SUBSCRIPTION
from crescendo.pipeline.ledger.block_sums import block_of
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import deliveries, first_attempts

SEGMENT_BITS = 8

MIN_ROWS = 500_000
"""With fewer rows in suspect blocks, comparing all of them is faster than another job."""

_SIGN, _SEGMENT = "sign", "segment"
_KEYS = (SUBSCRIPTION, SENDER, _SEGMENT)


def narrow(frames: Frames, suspects: DataFrame, connections: Connections) -> DataFrame:
    """The segments of suspect blocks that do not balance, in the columns of `suspects`."""
    suspects = F.broadcast(suspects)
    owed = _numbered(first_attempts(frames.sent)).join(suspects, on=[SENDER, BLOCK], how="inner")
    arrived = _numbered(
        deliveries(frames.received), connections.subscription_column(F.col(RECEIVER)).alias(SUBSCRIPTION)
    )
    arrived = arrived.join(suspects, on=[SUBSCRIPTION, SENDER, BLOCK], how="inner")
    sides = _signed(owed, 1).unionByName(_signed(arrived, -1))
    # Both sides in one sum: sends count up, deliveries count down, and all hashes enter the same xor.
    low = F.col(SEQ).bitwiseAND(F.lit((1 << SEGMENT_BITS) - 1))
    balances = sides.groupBy(*_KEYS).agg(
        F.sum(_SIGN).alias(MESSAGES),
        F.sum(low * F.col(_SIGN)).alias(LOW_SUM),
        F.bit_xor(F.xxhash64(SEQ)).alias(HASH),
    )
    differs = (F.col(MESSAGES) != 0) | (F.col(LOW_SUM) != 0) | (F.col(HASH) != 0)
    return balances.where(differs).select(SUBSCRIPTION, SENDER, F.col(_SEGMENT).alias(BLOCK))


def _numbered(rows: DataFrame, *others: Column) -> DataFrame:
    return rows.select(F.col(SENDER).cast("int").alias(SENDER), SEQ, block_of(F.col(SEQ)).alias(BLOCK), *others)


def _signed(rows: DataFrame, sign: int) -> DataFrame:
    segment = block_of(F.col(SEQ), SEGMENT_BITS).alias(_SEGMENT)
    return rows.select(SUBSCRIPTION, SENDER, segment, SEQ, F.lit(sign).cast("long").alias(_SIGN))


def rows_in_segments(segments: int) -> int:
    """About how many rows that leaves: per message one for its send, one for its settlement, one for its delivery."""
    return 3 * segments << SEGMENT_BITS
