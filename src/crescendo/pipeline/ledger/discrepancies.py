"""Exactly which messages were lost, undelivered, duplicated, reordered or never recorded as sent?

Compares, message by message, only the blocks that do not balance, and the deliveries that a receiver flagged as out of
order. The first delivery of a message to a subscription is the first by time, then receiver, then arrival. Lists
sequence numbers; `ledger` counts them.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.ledger.block_sums import BLOCK_BITS, accepted_ranges, block_of
from crescendo.pipeline.source.connections import Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import deliveries, first_attempts, flagged
from crescendo.pipeline.source.per_run import UNKNOWN
from crescendo.record.schema import Flag
from crescendo.record.tables import LEDGER_RANGES

LOST, DUPLICATED, REORDERED, UNRECORDED = "lost", "duplicated", "reordered", "unrecorded"
UNDELIVERED = "undelivered"

_SENT, _ARRIVED, _FIRST, _LATE, _DIFFERS, _ISLAND = "sent", "arrived", "first", "late", "differs", "island"
_MESSAGE = (c.SUBSCRIPTION, c.SENDER, c.SEQ)
_PARTITION_ROWS = 500_000  # of about 60 bytes: a partition fits into memory several times over


def discrepancies(
    frames: Frames,
    suspects: DataFrame,
    connections: Connections,
    rows: int,
    bits: int = BLOCK_BITS,
    still_arriving: DataFrame | None = None,
) -> DataFrame:
    """One row per kind and unbroken range of sequence numbers, for a sender and a subscription.

    `suspects` names the blocks of 2^`bits` numbers; `rows` is about how many rows they hold, and sets the number of
    partitions. `still_arriving` has the last number that arrived from each sender in the subscriptions whose messages
    were still arriving when the drain ended: missing messages after it are undelivered, and nobody knows if lost.
    """
    suspects = F.broadcast(suspects)
    facts = (
        _owed(frames.sent, suspects, bits)
        .unionByName(_accepted(frames.settled, suspects, bits))
        .unionByName(_arrived(frames.received, suspects, connections, bits))
    )
    # Partition by message first: nearly every row is a different message, so pre-aggregation would save nothing.
    facts = facts.repartition(rows // _PARTITION_ROWS + 1, *_MESSAGE)
    return _ranges(_findings(_with_last_arrival(_outcomes(facts), still_arriving))).withColumn(
        c.SUBSCRIPTION, connections.name_column(F.col(c.SUBSCRIPTION))
    )


def _owed(sent: DataFrame, suspects: DataFrame, bits: int) -> DataFrame:
    rows = _with_block(first_attempts(sent), bits).join(suspects, on=[c.SENDER, c.BLOCK], how="inner")
    return _facts(rows, sent=F.lit(1))


def _accepted(settled: DataFrame, suspects: DataFrame, bits: int) -> DataFrame:
    first, last = F.col(c.FIRST_SEQ), F.col(c.LAST_SEQ)
    blocks = F.sequence(block_of(first, bits), block_of(last, bits))
    ranges = accepted_ranges(settled).select(F.col(c.SENDER).cast("int"), first, last, F.explode(blocks).alias(c.BLOCK))
    low = F.shiftleft(c.BLOCK, bits)
    high = low + F.lit((1 << bits) - 1)
    # One row per message instead of a range join, which would compare every lost message with every range of its block.
    rows = ranges.join(suspects, on=[c.SENDER, c.BLOCK], how="inner").withColumn(
        c.SEQ, F.explode(F.sequence(F.greatest(first, low), F.least(last, high)))
    )
    return _facts(rows, acknowledged=F.lit(1))


def _arrived(received: DataFrame, suspects: DataFrame, connections: Connections, bits: int) -> DataFrame:
    rows = _with_block(deliveries(received), bits)
    rows = rows.withColumn(c.SUBSCRIPTION, connections.subscription_column(F.col(c.RECEIVER)))
    rows = rows.join(suspects.withColumn(_DIFFERS, F.lit(True)), on=[c.SUBSCRIPTION, c.SENDER, c.BLOCK], how="left")
    late, elsewhere = flagged(Flag.OUT_OF_ORDER), F.col(_DIFFERS).isNull()
    rows = rows.where(~elsewhere | (late & (F.col(c.SUBSCRIPTION) != UNKNOWN)))
    return _facts(
        rows,
        # Elsewhere the block balances, so a late delivery is the only one of its message, and the message was sent.
        sent=F.when(elsewhere, 1).otherwise(0),
        arrived=F.lit(1),
        first=F.struct(F.col(c.RECEIVED_NS), F.col(c.RECEIVER).cast("int"), F.col(c.ARRIVAL), late.alias(_LATE)),
    )


def _outcomes(facts: DataFrame) -> DataFrame:
    """One row per message: whether it was sent and acknowledged, how often it arrived, and whether late."""
    return facts.groupBy(*_MESSAGE).agg(
        F.max(_SENT).alias(_SENT),
        F.max(c.ACKNOWLEDGED).alias(c.ACKNOWLEDGED),
        F.sum(_ARRIVED).alias(_ARRIVED),
        F.min(_FIRST)[_LATE].alias(_LATE),
    )


def _with_last_arrival(outcomes: DataFrame, still_arriving: DataFrame | None) -> DataFrame:
    """Each message with the last number that arrived from its sender; null where nothing was arriving any more."""
    if still_arriving is None:
        return outcomes.withColumn(c.LAST_SEQ, F.lit(None).cast("long"))
    return outcomes.join(F.broadcast(still_arriving), on=[c.SUBSCRIPTION, c.SENDER], how="left")


def _findings(outcomes: DataFrame) -> DataFrame:
    """One row per discrepancy of a message; a correct message has none."""
    sent, arrived = F.col(_SENT) > 0, F.col(_ARRIVED)
    pending = F.coalesce(F.col(c.SEQ) > F.col(c.LAST_SEQ), F.lit(False))
    findings = F.array(
        _finding(sent & (arrived == 0) & ~pending, LOST, F.lit(1)),
        _finding(sent & (arrived == 0) & pending, UNDELIVERED, F.lit(1)),
        _finding(arrived > 1, DUPLICATED, arrived - 1),
        _finding(F.coalesce(F.col(_LATE), F.lit(False)), REORDERED, F.lit(1)),
        _finding(~sent & (arrived > 0), UNRECORDED, F.lit(1)),
    )
    return outcomes.select(
        *_MESSAGE,
        (F.col(c.ACKNOWLEDGED) > 0).alias(c.ACKNOWLEDGED),
        F.inline(F.filter(findings, lambda finding: finding.isNotNull())),
    )


def _ranges(findings: DataFrame) -> DataFrame:
    """Merge consecutive messages with the same discrepancy into one range."""
    keys = (c.KIND, c.SUBSCRIPTION, c.SENDER, c.ACKNOWLEDGED)
    # Acknowledgement matters only for messages that did not arrive; for other kinds it would split ranges.
    missing = F.col(c.KIND).isin(LOST, UNDELIVERED)
    findings = findings.withColumn(c.ACKNOWLEDGED, F.when(missing, F.col(c.ACKNOWLEDGED)))
    position = F.row_number().over(Window.partitionBy(*keys).orderBy(c.SEQ))
    return (
        findings.withColumn(_ISLAND, F.col(c.SEQ) - position)
        .groupBy(*keys, _ISLAND)
        .agg(F.min(c.SEQ).alias(c.FIRST_SEQ), F.max(c.SEQ).alias(c.LAST_SEQ), F.sum(c.COUNT).alias(c.COUNT))
        .select(*LEDGER_RANGES.column_names)
    )


def _with_block(rows: DataFrame, bits: int) -> DataFrame:
    return rows.withColumn(c.BLOCK, block_of(F.col(c.SEQ), bits)).withColumn(c.SENDER, F.col(c.SENDER).cast("int"))


def _finding(happened: Column, kind: str, count: Column) -> Column:
    return F.when(happened, F.struct(F.lit(kind).alias(c.KIND), count.cast("long").alias(c.COUNT)))


def _facts(rows: DataFrame, **known: Column) -> DataFrame:
    first_type = f"struct<{c.RECEIVED_NS}:bigint,{c.RECEIVER}:int,{c.ARRIVAL}:bigint,{_LATE}:boolean>"
    return rows.select(
        *_MESSAGE,
        known.get(_SENT, F.lit(0)).alias(_SENT),
        known.get(c.ACKNOWLEDGED, F.lit(0)).alias(c.ACKNOWLEDGED),
        known.get(_ARRIVED, F.lit(0)).alias(_ARRIVED),
        known.get(_FIRST, F.lit(None)).cast(first_type).alias(_FIRST),
    )
