"""Exactly which messages were lost, repeated, reordered or never recorded as sent?

Only the blocks that do not balance are looked at message by message, and beside them the deliveries that a receiver
saw out of order. A delivery is the first of its message in a subscription by time, then receiver, then arrival.
Says what happened to which sequence numbers; how many that makes in all is for `ledger` to say.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    ACKNOWLEDGED,
    ARRIVAL,
    BLOCK,
    COUNT,
    FIRST_SEQ,
    KIND,
    LAST_SEQ,
    RECEIVED_NS,
    RECEIVER,
    SENDER,
    SEQ,
    SUBSCRIPTION,
)
from crescendo.pipeline.ledger.block_sums import BLOCK_BITS, accepted_ranges, block_of
from crescendo.pipeline.source.connections import NOBODY, Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import deliveries, first_attempts, flagged
from crescendo.record.schema import Flag

LOST, DUPLICATED, REORDERED, UNRECORDED = "lost", "duplicated", "reordered", "unrecorded"

_SENT, _ARRIVED, _FIRST, _LATE, _DIFFERS, _ISLAND = "sent", "arrived", "first", "late", "differs", "island"
_MESSAGE = (SUBSCRIPTION, SENDER, SEQ)
_PIECE_ROWS = 500_000  # of about 60 bytes: a piece fits into memory several times over


def discrepancies(
    frames: Frames, suspects: DataFrame, connections: Connections, rows: int, bits: int = BLOCK_BITS
) -> DataFrame:
    """One row per kind and unbroken range of sequence numbers, for a sender and a subscription.

    `suspects` names the blocks of two to the power of `bits` numbers; `rows` is about how many rows are in them, and
    decides into how many pieces they are cut.
    """
    suspects = F.broadcast(suspects)
    facts = (
        _owed(frames.sent, suspects, bits)
        .unionByName(_accepted(frames.settled, suspects, bits))
        .unionByName(_arrived(frames.received, suspects, connections, bits))
    )
    # Cut by message right away: nearly every row is a message of its own, so adding up before it would save nothing.
    facts = facts.repartition(rows // _PIECE_ROWS + 1, *_MESSAGE)
    return _ranges(_findings(_fates(facts))).withColumn(SUBSCRIPTION, connections.name_column(F.col(SUBSCRIPTION)))


def _owed(sent: DataFrame, suspects: DataFrame, bits: int) -> DataFrame:
    rows = _with_block(first_attempts(sent), bits).join(suspects, on=[SENDER, BLOCK], how="inner")
    return _facts(rows, sent=F.lit(1))


def _accepted(settled: DataFrame, suspects: DataFrame, bits: int) -> DataFrame:
    first, last = F.col(FIRST_SEQ), F.col(LAST_SEQ)
    blocks = F.sequence(block_of(first, bits), block_of(last, bits))
    ranges = accepted_ranges(settled).select(F.col(SENDER).cast("int"), first, last, F.explode(blocks).alias(BLOCK))
    low = F.shiftleft(BLOCK, bits)
    high = low + F.lit((1 << bits) - 1)
    # One row a message and not a range join: that would compare every lost message with every range of its block.
    rows = ranges.join(suspects, on=[SENDER, BLOCK], how="inner").withColumn(
        SEQ, F.explode(F.sequence(F.greatest(first, low), F.least(last, high)))
    )
    return _facts(rows, acknowledged=F.lit(1))


def _arrived(received: DataFrame, suspects: DataFrame, connections: Connections, bits: int) -> DataFrame:
    rows = _with_block(deliveries(received), bits)
    rows = rows.withColumn(SUBSCRIPTION, connections.subscription_column(F.col(RECEIVER)))
    rows = rows.join(suspects.withColumn(_DIFFERS, F.lit(True)), on=[SUBSCRIPTION, SENDER, BLOCK], how="left")
    late, elsewhere = flagged(Flag.OUT_OF_ORDER), F.col(_DIFFERS).isNull()
    rows = rows.where(~elsewhere | (late & (F.col(SUBSCRIPTION) != NOBODY)))
    return _facts(
        rows,
        # Elsewhere the block balances, so a late delivery is the only one of its message, and it was sent.
        sent=F.when(elsewhere, 1).otherwise(0),
        arrived=F.lit(1),
        first=F.struct(F.col(RECEIVED_NS), F.col(RECEIVER).cast("int"), F.col(ARRIVAL), late.alias(_LATE)),
    )


def _fates(facts: DataFrame) -> DataFrame:
    """What became of each message."""
    return facts.groupBy(*_MESSAGE).agg(
        F.max(_SENT).alias(_SENT),
        F.max(ACKNOWLEDGED).alias(ACKNOWLEDGED),
        F.sum(_ARRIVED).alias(_ARRIVED),
        F.min(_FIRST)[_LATE].alias(_LATE),
    )


def _findings(fates: DataFrame) -> DataFrame:
    """A row for each thing that went wrong with a message; a good message gives none."""
    sent, arrived = F.col(_SENT) > 0, F.col(_ARRIVED)
    findings = F.array(
        _finding(sent & (arrived == 0), LOST, F.lit(1)),
        _finding(arrived > 1, DUPLICATED, arrived - 1),
        _finding(F.coalesce(F.col(_LATE), F.lit(False)), REORDERED, F.lit(1)),
        _finding(~sent & (arrived > 0), UNRECORDED, F.lit(1)),
    )
    return fates.select(
        *_MESSAGE,
        (F.col(ACKNOWLEDGED) > 0).alias(ACKNOWLEDGED),
        F.inline(F.filter(findings, lambda finding: finding.isNotNull())),
    )


def _ranges(findings: DataFrame) -> DataFrame:
    """Neighbouring messages with the same fate become one range."""
    keys = (KIND, SUBSCRIPTION, SENDER, ACKNOWLEDGED)
    # Whether a message was acknowledged matters when it is lost, and would only break the other ranges up.
    findings = findings.withColumn(ACKNOWLEDGED, F.when(F.col(KIND) == LOST, F.col(ACKNOWLEDGED)))
    position = F.row_number().over(Window.partitionBy(*keys).orderBy(SEQ))
    return (
        findings.withColumn(_ISLAND, F.col(SEQ) - position)
        .groupBy(*keys, _ISLAND)
        .agg(F.min(SEQ).alias(FIRST_SEQ), F.max(SEQ).alias(LAST_SEQ), F.sum(COUNT).alias(COUNT))
        .select(KIND, SUBSCRIPTION, SENDER, FIRST_SEQ, LAST_SEQ, ACKNOWLEDGED, COUNT)
    )


def _with_block(rows: DataFrame, bits: int) -> DataFrame:
    return rows.withColumn(BLOCK, block_of(F.col(SEQ), bits)).withColumn(SENDER, F.col(SENDER).cast("int"))


def _finding(happened: Column, kind: str, count: Column) -> Column:
    return F.when(happened, F.struct(F.lit(kind).alias(KIND), count.cast("long").alias(COUNT)))


def _facts(rows: DataFrame, **known: Column) -> DataFrame:
    first_type = f"struct<{RECEIVED_NS}:bigint,{RECEIVER}:int,{ARRIVAL}:bigint,{_LATE}:boolean>"
    return rows.select(
        *_MESSAGE,
        known.get(_SENT, F.lit(0)).alias(_SENT),
        known.get(ACKNOWLEDGED, F.lit(0)).alias(ACKNOWLEDGED),
        known.get(_ARRIVED, F.lit(0)).alias(_ARRIVED),
        known.get(_FIRST, F.lit(None)).cast(first_type).alias(_FIRST),
    )
