"""How many messages did the system refuse?

A message settled with any outcome but accepted is an error. Counts them by second, sender and outcome, with their share
of all messages settled in that second for that sender. The parts themselves show whether there are any: most runs have
none, and then nothing is computed. Messages that were never settled are in the ledger, not here.
"""

from collections.abc import Iterable

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.pipeline.columns import FIRST_SEQ, LAST_SEQ, MESSAGES, OUTCOME, SECOND, SENDER, SETTLED_NS
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.schema import SETTLED, Settlement
from crescendo.record.table_types import column_name
from crescendo.record.tables import ERRORS, ErrorRow

SHARE = column_name(ErrorRow.share)


def build_errors(context: AnalysisContext) -> DataFrame | None:
    """None if every message was accepted. Parts on this machine are read directly: a Spark query would be a job."""
    if isinstance(context.recording.location, Directory):
        found = any_refusals(context.recording.files(SETTLED))
    else:
        found = any_refusals_in(context.frames.settled)
    return refusals(context.frames.settled, context.timeline) if found else None


def any_refusals(files: Iterable[str]) -> bool:
    """Whether a part holds an outcome other than accepted; the column is a few bytes when all are equal."""
    accepted = int(Settlement.ACCEPTED)
    return any(
        pc.any(pc.not_equal(batch[OUTCOME], accepted)).as_py()
        for file in files
        for batch in pq.ParquetFile(file).iter_batches(columns=[OUTCOME])
    )


def any_refusals_in(settled: DataFrame) -> bool:
    """The same by a Spark query."""
    return not settled.where(F.col(OUTCOME) != int(Settlement.ACCEPTED)).limit(1).isEmpty()


def refusals(settled: DataFrame, timeline: Timeline) -> DataFrame:
    """One row per second, sender and outcome other than accepted, by settlement time."""
    counts = settled.groupBy(
        timeline.second_of(F.col(SETTLED_NS)).alias(SECOND), F.col(SENDER).cast("int").alias(SENDER), OUTCOME
    ).agg(F.sum(F.col(LAST_SEQ) - F.col(FIRST_SEQ) + 1).alias(MESSAGES))
    together = F.sum(MESSAGES).over(Window.partitionBy(SECOND, SENDER))
    name = F.col(OUTCOME).cast("string")
    for outcome in Settlement:
        name = F.when(F.col(OUTCOME) == int(outcome), F.lit(outcome.name.lower())).otherwise(name)
    return (
        counts.withColumn(SHARE, F.col(MESSAGES) / together)
        .where(F.col(OUTCOME) != int(Settlement.ACCEPTED))
        .withColumn(OUTCOME, name)
        .select(*ERRORS.column_names)
    )
