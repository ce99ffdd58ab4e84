"""What follows from a log of received messages?

A consumer's log proves more than it says: each number in it was sent, at the time that the message carried, and so was
each number that is missing between two others. Lines stand in the order of arrival, so a number below an earlier one
arrived out of order. Both need the messages of a sender side by side, which is the dear part of an import. Where
messages have no numbers they are counted, and none of this follows.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, SOURCE
from crescendo.importers.lines import small_frame
from crescendo.record.schema import Flag

MAX_HOLE = 1_000_000
"""Numbers in a row that may be missing. More than that is a number that was misread or belongs to something else."""

_PIECE_LINES = 1_000_000
_NEXT_SEQ, _NEXT_NS, _HOLE = "_next_seq", "_next_ns", "_hole"


def connected(rows: DataFrame, numbers: dict[int, int], sizes: dict[int, int] | None = None) -> DataFrame:
    """Rows of files that are one connection each, with `connection` and `size`; `numbers` leads from source to number.

    A size that is not known is 0.
    """
    known = sizes or {}
    table = [{SOURCE: source, "connection": number, "size": known.get(source, 0)} for source, number in numbers.items()]
    lookup = small_frame(rows.sparkSession, f"{SOURCE} INT, connection INT, size INT", table)
    return rows.join(F.broadcast(lookup), on=SOURCE, how="inner")


def counted(rows: DataFrame, chains: list[list[int]]) -> DataFrame:
    """Rows of the sources in these chains with `seq`: from 0, without a gap, from one source of a chain to the next.

    The numbers of lines will not do: where one was rejected they have a hole, and a hole would look like a loss.
    """
    mine = rows.where(F.col(SOURCE).isin([source for chain in chains for source in chain])).withColumn(
        "piece", F.call_function("div", F.col(LINE), F.lit(_PIECE_LINES))
    )
    pieces = sorted(mine.groupBy(SOURCE, "piece").count().collect())
    offsets = []
    for chain in chains:
        total = 0
        for row in (row for source in chain for row in pieces if row[SOURCE] == source):
            offsets.append({SOURCE: row[SOURCE], "piece": row["piece"], "offset": total})
            total += row["count"]
    lookup = small_frame(mine.sparkSession, f"{SOURCE} INT, piece BIGINT, offset BIGINT", offsets)
    within = F.row_number().over(Window.partitionBy(SOURCE, "piece").orderBy(LINE))
    return (
        mine.withColumn("rank", within)
        .join(F.broadcast(lookup), on=[SOURCE, "piece"], how="inner")
        .withColumn("seq", F.col("offset") + F.col("rank") - 1)
        .drop("piece", "offset", "rank")
    )


def arrivals(rows: DataFrame) -> DataFrame:
    """Received messages of pairs: the sender has the number of the receiver, and lines stand in order of arrival."""
    return rows.select(
        F.col("connection").alias("receiver"),
        F.col("connection").alias("sender"),
        "seq",
        F.col("sent_ns").alias("intended_ns"),
        "sent_ns",
        "received_ns",
        F.col(LINE).alias("arrival"),
        "size",
    )


def in_order_of_arrival(received: DataFrame) -> DataFrame:
    """Received messages with `flags`: out of order where a larger number of that sender had arrived there before."""
    before = (
        Window.partitionBy("receiver", "sender").orderBy("arrival").rowsBetween(Window.unboundedPreceding, -1)
    )  # fmt: skip
    late = F.col("seq") < F.max("seq").over(before)
    return received.withColumn("flags", F.when(late, F.lit(int(Flag.OUT_OF_ORDER))).otherwise(F.lit(0)))


def sent_by(received: DataFrame, *, missing: bool = True) -> DataFrame:
    """What must have been sent, each number once; `received` has sender, seq, sent_ns and size.

    The time of a number that never arrived is interpolated between its neighbours'. A row whose `sent_ns` is null says
    that the number is accounted for, but not when: it closes a hole and is not among the results.
    """
    once = received.groupBy("sender", "seq").agg(F.min("sent_ns").alias("sent_ns"), F.max("size").alias("size"))
    if missing:
        ordered = Window.partitionBy("sender").orderBy("seq")
        holes = once.withColumns(
            {_NEXT_SEQ: F.lead("seq").over(ordered), _NEXT_NS: F.lead("sent_ns").over(ordered)}
        ).withColumn(_HOLE, F.col(_NEXT_SEQ) - F.col("seq"))
        filled = F.when(
            F.col(_HOLE).between(2, MAX_HOLE + 1), F.sequence(F.col("seq"), F.col(_NEXT_SEQ) - 1)
        ).otherwise(F.array("seq"))
        step = (F.coalesce(F.col(_NEXT_NS), F.col("sent_ns")) - F.col("sent_ns")) / F.col(_HOLE)
        spread = holes.withColumn("number", F.explode(filled))
        passed = F.col("number") - F.col("seq")
        once = spread.select(
            "sender",
            F.col("number").alias("seq"),
            F.when(passed == 0, F.col("sent_ns"))
            .otherwise(F.col("sent_ns") + F.round(step * passed).cast("long"))
            .alias("sent_ns"),
            "size",
        )
    return (
        once.where(F.col("sent_ns").isNotNull())
        .select("sender", "seq", F.lit(1).alias("attempt"), F.col("sent_ns").alias("intended_ns"), "sent_ns", "size")
        .repartition("sender")
        .sortWithinPartitions("sender", "seq")
    )
