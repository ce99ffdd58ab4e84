"""Which tables are computed by reading the whole recording?

The published tables that name a function to build them, and the intermediate ones that others are made from. Each is
one job, and all jobs run in parallel: while one is planned or compiled, another computes. A table that would be empty
is not computed: a recording without spans, refusals or readings has no job for them. Latencies by connection need a
scan of their own, so they are computed only on request. Describes the jobs; `job` runs them.
"""

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame

from crescendo.pipeline import columns as c
from crescendo.pipeline.behaviour.ticks import tick_counts, ticks_for
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.connection_histogram import connection_histogram
from crescendo.pipeline.ledger.block_sums import block_sums
from crescendo.record.tables import TABLES


def scans(context: AnalysisContext) -> dict[str, Callable[[], DataFrame | None]]:
    """Table -> function that builds its DataFrame, or returns None for a table that would be empty."""
    timeline, connections = context.timeline, context.connections
    tables: dict[str, Callable[[], DataFrame | None]] = {
        table.name: partial(build, context) for table in TABLES if (build := table.builder()) is not None
    }
    tables[c.BLOCK_SUMS] = lambda: block_sums(context.frames, timeline, connections)
    if context.includes_behaviour:
        tables[c.TICKS] = lambda: tick_counts(context.frames, [ticks_for(timeline, connections)], connections)
    if context.full:
        tables[c.CONNECTION_HISTOGRAM] = lambda: connection_histogram(context.frames, timeline, connections)
    return tables
