"""Which recorded range is a row in, and what delay does it have?

A left join with the pieces of `delay_ranges`: an equality of connection and block, then a comparison with the few
ranges of that block. Knows nothing of what the numbers count.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c


class JoinedRanges(NamedTuple):
    """Pieces of ranges as a frame, and the bits of a number that its block does not hold."""

    pieces: DataFrame
    bits: int


def with_delay(rows: DataFrame, ranges: JoinedRanges | None, connection: str, number: str, delay: str) -> DataFrame:
    """The rows with the delay of the range that they are in; null if they are in none."""
    if ranges is None:
        return rows.withColumn(delay, F.lit(None).cast("long"))
    first, last = f"first_{delay}", f"last_{delay}"
    pieces = ranges.pieces.select(
        F.col(c.CONNECTION).alias(f"of_{delay}"),
        F.col(c.BLOCK).alias(f"block_{delay}"),
        F.col(c.FIRST_SEQ).alias(first),
        F.col(c.LAST_SEQ).alias(last),
        F.col(c.DELAY_NS).alias(delay),
    )
    block = F.call_function("shiftright", F.col(number), F.lit(ranges.bits))
    within = (
        (F.col(connection).cast("int") == F.col(f"of_{delay}"))
        & (block == F.col(f"block_{delay}"))
        & (F.col(number) >= F.col(first))
        & (F.col(number) <= F.col(last))
    )
    return rows.join(F.broadcast(pieces), on=within, how="left").drop(f"of_{delay}", f"block_{delay}", first, last)
