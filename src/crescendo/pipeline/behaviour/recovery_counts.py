"""How many messages did each fault cost?

One job over the messages of a run with faults. A message belongs to the fault in whose span it was sent, or shed; a
redelivery to the fault in whose span it arrived. Spans do not overlap. Finds no discrepancies itself: those of the
ledger are looked up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.ledger.discrepancies import DUPLICATED, LOST, REORDERED
from crescendo.pipeline.source.ingest import read_parquet
from crescendo.pipeline.source.moments import deliveries, first_attempts, flagged
from crescendo.record.schema import Flag, Settlement
from crescendo.record.tables import LEDGER_RANGES

REDELIVERED, SHED, LOST_ACKNOWLEDGED = "redelivered", "shed", "lost acknowledged"
_FAULT, _LOW, _HIGH = "fault", "low_ns", "high_ns"


@dataclass(frozen=True)
class FaultSpan:
    """The messages of one fault: sent from the oldest one that was in the system until its effects were over."""

    number: int
    from_ns: int
    start_ns: int
    until_ns: int


def recovery_counts(context: AnalysisContext, spans: Sequence[FaultSpan], ranges: str) -> DataFrame:
    """One row per fault and kind of discrepancy that it has. `ranges` is where Spark finds those of the ledger."""
    frames = context.frames
    received = deliveries(frames.received).where(flagged(Flag.REDELIVERED))
    shed = frames.settled.where(F.col(c.OUTCOME) == int(Settlement.SHED))
    listed = read_parquet(context.spark, LEDGER_RANGES.spark_ddl(), [ranges])
    found = _found(listed, frames.sent)
    parts = [
        _counted(received, spans, F.col(c.RECEIVED_NS), F.lit(REDELIVERED), F.lit(1)),
        _counted(shed, spans, F.col(c.SETTLED_NS), F.lit(SHED), F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1),
        _counted(found, spans, F.col(c.SENT_NS), F.col(c.KIND), F.col(c.COUNT)),
    ]
    counted = reduce(DataFrame.unionByName, parts)
    return counted.groupBy(_FAULT, c.KIND).agg(F.sum(c.COUNT).alias(c.COUNT))


def read_counts(files: Sequence[Path]) -> dict[int, Mapping[str, int]]:
    """Fault -> kind -> how many."""
    counts: dict[int, dict[str, int]] = {}
    if files:
        for row in ds.dataset([str(file) for file in files], format="parquet").to_table().to_pylist():
            counts.setdefault(row[_FAULT], {})[row[c.KIND]] = round(row[c.COUNT])
    return dict(counts)


def _found(ranges: DataFrame, sent: DataFrame) -> DataFrame:
    """One row per message and discrepancy, with the time it was sent."""
    found = ranges.where(F.col(c.KIND).isin(LOST, DUPLICATED, REORDERED))
    width = F.col(c.LAST_SEQ) - F.col(c.FIRST_SEQ) + 1
    lost = F.col(c.KIND) == LOST
    kinds = F.when(lost & F.col(c.ACKNOWLEDGED), F.array(F.lit(LOST), F.lit(LOST_ACKNOWLEDGED))).otherwise(
        F.array(F.col(c.KIND))
    )
    # Surplus deliveries are counted per range: each of its messages takes an equal part.
    listed = found.select(
        F.explode(kinds).alias(c.KIND),
        F.col(c.SENDER).cast("int").alias(c.SENDER),
        c.FIRST_SEQ,
        c.LAST_SEQ,
        (F.col(c.COUNT) / width).alias(c.COUNT),
    )
    messages = first_attempts(sent).select(F.col(c.SENDER).cast("int").alias(c.SENDER), c.SEQ, c.SENT_NS)
    listed = F.broadcast(listed.withColumnRenamed(c.SENDER, "of_sender"))
    inside = F.col(c.SEQ).between(F.col(c.FIRST_SEQ), F.col(c.LAST_SEQ))
    return messages.join(listed, (F.col(c.SENDER) == F.col("of_sender")) & inside)


def _counted(rows: DataFrame, spans: Sequence[FaultSpan], t_ns: Column, kind: Column, count: Column) -> DataFrame:
    windows = F.array(
        *(
            F.struct(
                F.lit(span.number).alias(_FAULT),
                F.lit(span.from_ns).cast("long").alias(_LOW),
                F.lit(span.until_ns).cast("long").alias(_HIGH),
            )
            for span in spans
        )
    )
    fitting = F.filter(windows, lambda window: (t_ns >= window[_LOW]) & (t_ns < window[_HIGH]))
    return (
        rows.withColumn("window", F.get(fitting, F.lit(0)))
        .where(F.col("window").isNotNull())
        .groupBy(F.col("window")[_FAULT].alias(_FAULT), kind.alias(c.KIND))
        .agg(F.sum(count).cast("double").alias(c.COUNT))
    )
