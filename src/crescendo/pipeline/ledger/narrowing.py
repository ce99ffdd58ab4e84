"""Where in a block that does not balance is the trouble?

One lost message makes 65,536 others suspects. Cuts the suspect blocks into pieces of 256 numbers and balances those,
in one more scan that brings no messages together: a piece that agrees in count, sum and hash is cleared. A loss here
and there in every block then leaves one message in 256 to be looked at, and not all of them.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import BLOCK, HASH, LOW_SUM, MESSAGES, RECEIVER, SENDER, SEQ, SUBSCRIPTION
from crescendo.pipeline.ledger.block_sums import block_of
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import deliveries, first_attempts

PIECE_BITS = 8

WORTH_ROWS = 500_000
"""With fewer rows in suspect blocks, looking at all of them is quicker than another job."""

_SIGN, _PIECE = "sign", "piece"
_KEYS = (SUBSCRIPTION, SENDER, _PIECE)


def narrow(frames: Frames, suspects: DataFrame, connections: Connections) -> DataFrame:
    """The pieces of suspect blocks that do not balance, in the columns of `suspects`."""
    suspects = F.broadcast(suspects)
    owed = _numbered(first_attempts(frames.sent)).join(suspects, on=[SENDER, BLOCK], how="inner")
    arrived = _numbered(
        deliveries(frames.received), connections.subscription_column(F.col(RECEIVER)).alias(SUBSCRIPTION)
    )
    arrived = arrived.join(suspects, on=[SUBSCRIPTION, SENDER, BLOCK], how="inner")
    sides = _signed(owed, 1).unionByName(_signed(arrived, -1))
    # Both sides in one sum: what was sent counts up, what arrived counts down, and the hashes meet in the same xor.
    low = F.col(SEQ).bitwiseAND(F.lit((1 << PIECE_BITS) - 1))
    balances = sides.groupBy(*_KEYS).agg(
        F.sum(_SIGN).alias(MESSAGES),
        F.sum(low * F.col(_SIGN)).alias(LOW_SUM),
        F.bit_xor(F.xxhash64(SEQ)).alias(HASH),
    )
    differs = (F.col(MESSAGES) != 0) | (F.col(LOW_SUM) != 0) | (F.col(HASH) != 0)
    return balances.where(differs).select(SUBSCRIPTION, SENDER, F.col(_PIECE).alias(BLOCK))


def _numbered(rows: DataFrame, *others: Column) -> DataFrame:
    return rows.select(F.col(SENDER).cast("int").alias(SENDER), SEQ, block_of(F.col(SEQ)).alias(BLOCK), *others)


def _signed(rows: DataFrame, sign: int) -> DataFrame:
    piece = block_of(F.col(SEQ), PIECE_BITS).alias(_PIECE)
    return rows.select(SUBSCRIPTION, SENDER, piece, SEQ, F.lit(sign).cast("long").alias(_SIGN))


def rows_in(pieces: int) -> int:
    """About how many rows that leaves: for each message one for being sent, one for being settled, one for arriving."""
    return 3 * pieces << PIECE_BITS
