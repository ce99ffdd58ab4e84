"""How are the messages of many small runs counted by one set of jobs?

A short run spends its time on planning and compiling, not on its messages. So the tables that every run has are
computed for many runs at once, with the run as a column, and each run gets its own rows. Spark finds the parts in a
directory of links that is partitioned by run. Tables that only some runs have are not made here, and neither is any
verdict.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from crescendo.pipeline import columns as c
from crescendo.pipeline.behaviour.ticks import tick_counts, ticks_for
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.histogram_table import message_histogram
from crescendo.pipeline.ledger.block_sums import block_sums
from crescendo.pipeline.source.connections import ConnectionsOfRuns
from crescendo.pipeline.source.ingest import ONE_PARTITION_ROWS, Frames
from crescendo.pipeline.source.local_rows import given_rows, read_here
from crescendo.pipeline.source.moments import TimelinesOfRuns
from crescendo.pipeline.source.run_slices import SliceColumns
from crescendo.pipeline.spark.evaluation import is_interpreted
from crescendo.pipeline.spark.parallel_jobs import run_parallel
from crescendo.pipeline.spark.settings import on_this_machine
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.storage.table_store import COLLECTED_ROWS, TableStore
from crescendo.pipeline.traffic.throughput import throughput
from crescendo.record.clock_mapping import is_shifted
from crescendo.record.schema import RECEIVED, SENT, SETTLED, SPANS, arrow_schema, spark_ddl
from crescendo.record.tables import LATENCY_HISTOGRAM, THROUGHPUT

MAX_RUNS = 64
"""Runs of one scan: enough to share its cost, few enough that a failure or an interrupt costs little."""

MAX_MESSAGES = 1_000_000
"""Runs with more messages are scanned alone: what they would share is small for them."""

JOINT_TABLES = frozenset((THROUGHPUT.name, LATENCY_HISTOGRAM.name, c.BLOCK_SUMS, c.TICKS))


def can_join(context: AnalysisContext) -> bool:
    """Whether the messages of a run can be scanned with those of others."""
    recording = context.recording
    return (
        isinstance(recording.location, Directory)
        and on_this_machine(context.spark.sparkContext.master)  # no other machine sees the links
        and context.includes_behaviour
        and not context.full
        and not recording.files(SPANS)  # some of them are latencies
        and not any(map(is_shifted, recording.manifest.clocks))  # times of other hosts are mapped run by run
        and all(0 < recording.rows(table) <= MAX_MESSAGES for table in (SENT, RECEIVED))
    )


def scan_together(contexts: Sequence[AnalysisContext], stores: Sequence[TableStore]) -> None:
    """Write the tables of `JOINT_TABLES` for every run."""
    spark = contexts[0].spark
    # In the directory of the session, which is removed even after a kill.
    session_dir = spark.sparkContext.getConf().get("spark.local.dir")
    with tempfile.TemporaryDirectory(prefix="crescendo-scan-", dir=session_dir) as scratch:
        folder = Path(scratch)
        write = _collect if _rows(contexts) <= COLLECTED_ROWS else partial(_write, folder=folder)
        jobs = [partial(write, name, build, stores) for name, build in _frames(contexts, folder).items()]
        run_parallel(jobs, spark)


def _frames(contexts: Sequence[AnalysisContext], folder: Path) -> dict[str, Callable[[], DataFrame]]:
    frames = Frames(*(_linked_parts(contexts, folder / table, table) for table in (SENT, SETTLED, RECEIVED)))
    timelines = TimelinesOfRuns(tuple(context.timeline for context in contexts))
    connections = ConnectionsOfRuns(tuple(context.connections for context in contexts))
    slices = SliceColumns.of_runs([context.slices for context in contexts])
    ticks = [ticks_for(context.timeline, context.connections) for context in contexts]
    return {
        THROUGHPUT.name: lambda: throughput(frames.sent, frames.received, timelines),
        LATENCY_HISTOGRAM.name: lambda: message_histogram(frames, timelines, connections, slices).sortWithinPartitions(
            c.RUN_NUMBER, c.SECOND
        ),
        c.BLOCK_SUMS: lambda: block_sums(frames, timelines, connections),
        c.TICKS: lambda: tick_counts(frames, ticks, connections),
    }


def _linked_parts(contexts: Sequence[AnalysisContext], folder: Path, table: str) -> DataFrame:
    """The rows of one table in all runs. The column with the run comes from the names of directories."""
    if is_interpreted(_rows(contexts)):
        return _given_parts(contexts, table)
    for number, context in enumerate(contexts):
        of_run = folder / f"{c.RUN_NUMBER}={number}"
        of_run.mkdir(parents=True)
        for index, file in enumerate(context.recording.local_files(table)):
            (of_run / f"{index}.parquet").symlink_to(Path(file).absolute())
    frame = contexts[0].spark.read.schema(f"{spark_ddl(table)}, {c.RUN_NUMBER} INT").parquet(str(folder))
    return frame.coalesce(1) if sum(each.recording.rows(table) for each in contexts) <= ONE_PARTITION_ROWS else frame


def _given_parts(contexts: Sequence[AnalysisContext], table: str) -> DataFrame:
    """The same for few rows, without a scan."""
    schema = arrow_schema(table)
    tables = [read_here(context.recording.local_files(table), schema) for context in contexts]
    column = pa.field(c.RUN_NUMBER, pa.int32(), nullable=False)
    numbered = [
        rows.append_column(column, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
        for number, rows in enumerate(tables)
    ]
    return given_rows(contexts[0].spark, pa.concat_tables(numbered)).coalesce(1)


def _rows(contexts: Sequence[AnalysisContext]) -> int:
    return sum(part.rows for context in contexts for part in context.recording.parts)


def _collect(name: str, build: Callable[[], DataFrame], stores: Sequence[TableStore]) -> None:
    """As the tables of one small run are written: from here, by one task for all of them."""
    rows = build().toArrow()
    for number, store in enumerate(stores):
        store.write_table(name, rows.filter(pc.field(c.RUN_NUMBER) == number).drop_columns([c.RUN_NUMBER]))


def _write(name: str, build: Callable[[], DataFrame], stores: Sequence[TableStore], folder: Path) -> None:
    written = folder / f"table-{name}"
    build().write.partitionBy(c.RUN_NUMBER).parquet(str(written))
    schema = pq.read_schema(next(written.glob("*/*.parquet")))
    for number, store in enumerate(stores):
        files = sorted((written / f"{c.RUN_NUMBER}={number}").glob("*.parquet"))
        if files:
            store.write_files(name, files)
        else:  # as Spark writes a table without rows
            store.write_table(name, schema.empty_table())
