"""What can be inferred from a log of received messages?

A consumer's log implies more than its lines: each sequence number in it was sent, at the time in the message, and so
was each number missing between two others. Lines are in order of arrival, so a number below an earlier one arrived out
of order. Both need the messages of a sender sorted together, which is the expensive part of an import. Messages without
numbers are only counted: none of this can be inferred for them.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, SOURCE
from crescendo.importers.lines import small_frame
from crescendo.record.schema import Flag

MAX_GAP = 1_000_000
"""The longest gap in sequence numbers that is filled. A longer gap means a misread or unrelated number."""

_SEGMENT_LINES = 1_000_000
_NEXT_SEQ, _NEXT_NS, _GAP = "_next_seq", "_next_ns", "_gap"


def with_connection(rows: DataFrame, numbers: dict[int, int], sizes: dict[int, int] | None = None) -> DataFrame:
    """Add `connection` and `size` to the rows of files that are one connection each.

    `numbers` maps a source to its connection number. An unknown size is 0.
    """
    known = sizes or {}
    table = [{SOURCE: source, "connection": number, "size": known.get(source, 0)} for source, number in numbers.items()]
    lookup = small_frame(rows.sparkSession, f"{SOURCE} INT, connection INT, size INT", table)
    return rows.join(F.broadcast(lookup), on=SOURCE, how="inner")


def with_counted_seq(rows: DataFrame, chains: list[list[int]]) -> DataFrame:
    """Add `seq` to the rows of the sources in these chains: from 0, without a gap, across the sources of a chain.

    Line numbers would not do: a rejected line leaves a gap, and a gap would look like a loss.
    """
    chained = rows.where(F.col(SOURCE).isin([source for chain in chains for source in chain])).withColumn(
        "segment", F.call_function("div", F.col(LINE), F.lit(_SEGMENT_LINES))
    )
    segments = sorted(chained.groupBy(SOURCE, "segment").count().collect())
    offsets = []
    for chain in chains:
        total = 0
        for row in (row for source in chain for row in segments if row[SOURCE] == source):
            offsets.append({SOURCE: row[SOURCE], "segment": row["segment"], "offset": total})
            total += row["count"]
    lookup = small_frame(chained.sparkSession, f"{SOURCE} INT, segment BIGINT, offset BIGINT", offsets)
    within = F.row_number().over(Window.partitionBy(SOURCE, "segment").orderBy(LINE))
    return (
        chained.withColumn("rank", within)
        .join(F.broadcast(lookup), on=[SOURCE, "segment"], how="inner")
        .withColumn("seq", F.col("offset") + F.col("rank") - 1)
        .drop("segment", "offset", "rank")
    )


def received_rows(rows: DataFrame) -> DataFrame:
    """Received messages of pairs: sender and receiver have the same number, and lines are in order of arrival."""
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


def with_order_flags(received: DataFrame) -> DataFrame:
    """Add `flags`: out of order where a larger number of that sender arrived earlier at that receiver."""
    before = (
        Window.partitionBy("receiver", "sender").orderBy("arrival").rowsBetween(Window.unboundedPreceding, -1)
    )  # fmt: skip
    late = F.col("seq") < F.max("seq").over(before)
    return received.withColumn("flags", F.when(late, F.lit(int(Flag.OUT_OF_ORDER))).otherwise(F.lit(0)))


def inferred_sent(received: DataFrame, *, missing: bool = True) -> DataFrame:
    """The messages that must have been sent, each number once; `received` has sender, seq, sent_ns and size.

    The time of a number that never arrived is interpolated between its neighbours. A row whose `sent_ns` is null means
    that the message arrived but its time is unknown: it closes a gap and is not in the result.
    """
    once = received.groupBy("sender", "seq").agg(F.min("sent_ns").alias("sent_ns"), F.max("size").alias("size"))
    if missing:
        ordered = Window.partitionBy("sender").orderBy("seq")
        gaps = once.withColumns(
            {_NEXT_SEQ: F.lead("seq").over(ordered), _NEXT_NS: F.lead("sent_ns").over(ordered)}
        ).withColumn(_GAP, F.col(_NEXT_SEQ) - F.col("seq"))
        filled = F.when(F.col(_GAP).between(2, MAX_GAP + 1), F.sequence(F.col("seq"), F.col(_NEXT_SEQ) - 1)).otherwise(
            F.array("seq")
        )
        step = (F.coalesce(F.col(_NEXT_NS), F.col("sent_ns")) - F.col("sent_ns")) / F.col(_GAP)
        expanded = gaps.withColumn("number", F.explode(filled))
        steps = F.col("number") - F.col("seq")
        once = expanded.select(
            "sender",
            F.col("number").alias("seq"),
            F.when(steps == 0, F.col("sent_ns"))
            .otherwise(F.col("sent_ns") + F.round(step * steps).cast("long"))
            .alias("sent_ns"),
            "size",
        )
    return (
        once.where(F.col("sent_ns").isNotNull())
        .select("sender", "seq", F.lit(1).alias("attempt"), F.col("sent_ns").alias("intended_ns"), "sent_ns", "size")
        .repartition("sender")
        .sortWithinPartitions("sender", "seq")
    )
