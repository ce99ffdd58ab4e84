"""How long did messages take on each link and in each node of a network?

Routers sample when a message arrived and when it left; senders and receivers know the rest. Of each sampled message the
steps add up to its whole time, because every step begins where the one before ended. Messages that were delivered more
than once, or passed a node more than once, have no single path and are left out. Routes are kept apart, so that a path
around a broken link is not mixed with the usual one. Judges nothing.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.source.ingest import read_parquet
from crescendo.pipeline.source.moments import Timeline, deliveries
from crescendo.record.schema import HOP_SAMPLED_EVERY, spark_ddl
from crescendo.record.schema import HOPS as RECORDED_HOPS
from crescendo.record.table_types import column_name
from crescendo.record.tables import HOPS, RECEIVER_END, SENDER_END, HopRow

NODE, ARRIVED_NS, DEPARTED_NS = "node", "arrived_ns", "departed_ns"
_PATH, _STEP = "path", "step"
_ROUTE, _POSITION, _START, _END = (
    column_name(HopRow.route),
    column_name(HopRow.position),
    column_name(HopRow.start),
    column_name(HopRow.end),
)
_FEWEST_BEYOND = 10  # samples beyond a percentile


def build_hops(context: AnalysisContext) -> DataFrame | None:
    """None for a recording without samples of routers, or without a measure phase."""
    files = context.recording.files(RECORDED_HOPS)
    if not files or not context.timeline.has_measure:
        return None
    # Routers run on the conductor's host, so their times are by its clock already.
    hops = read_parquet(context.spark, spark_ddl(RECORDED_HOPS), files)
    return hop_times(hops, context.frames.received, context.timeline)


def hop_times(hops: DataFrame, received: DataFrame, timeline: Timeline) -> DataFrame:
    """One row per route and step."""
    paths = (
        hops.groupBy(c.SENDER, c.SEQ)
        .agg(
            F.sort_array(F.collect_list(F.struct(ARRIVED_NS, DEPARTED_NS, NODE))).alias(_PATH),
            F.count_distinct(NODE).alias("nodes"),
        )
        .where(F.size(_PATH) == F.col("nodes"))
    )
    ends = (
        deliveries(received)
        .where(timeline.measured(F.col(c.INTENDED_NS)) & (F.col(c.SEQ) % HOP_SAMPLED_EVERY == 0))
        .groupBy(c.SENDER, c.SEQ)
        .agg(F.min(c.SENT_NS).alias(c.SENT_NS), F.min(c.RECEIVED_NS).alias(c.RECEIVED_NS), F.count("*").alias(c.COUNT))
        .where(F.col(c.COUNT) == 1)
    )
    steps = paths.join(ends, on=[c.SENDER, c.SEQ], how="inner").select(
        F.array_join(F.col(f"{_PATH}.{NODE}"), " → ").alias(_ROUTE),
        F.explode(F.concat(_links(), _nodes())).alias(_STEP),
    )
    duration = F.col(f"{_STEP}.{c.DURATION_NS}")
    return (
        steps.groupBy(_ROUTE, F.col(f"{_STEP}.{_POSITION}"), F.col(f"{_STEP}.{_START}"), F.col(f"{_STEP}.{_END}"))
        .agg(
            F.count("*").alias(column_name(HopRow.messages)),
            F.avg(duration).alias(column_name(HopRow.mean_ns)),
            _percentile(duration, 0.5).alias(column_name(HopRow.p50_ns)),
            _percentile(duration, 0.9).alias(column_name(HopRow.p90_ns)),
            _percentile(duration, 0.99).alias(column_name(HopRow.p99_ns)),
            F.max(duration).alias(column_name(HopRow.max_ns)),
        )
        .repartition(1)
        .sortWithinPartitions(_ROUTE, _POSITION)
        .select(*HOPS.column_names)
    )


def _links() -> Column:
    """Between the sender, the nodes and the receiver."""
    size = F.size(_PATH)

    def link(index: Column) -> Column:
        before, after = F.get(_PATH, index - 1), F.get(_PATH, index)
        begun_ns = F.when(index == 0, F.col(c.SENT_NS)).otherwise(before[DEPARTED_NS])
        ended_ns = F.when(index == size, F.col(c.RECEIVED_NS)).otherwise(after[ARRIVED_NS])
        return F.struct(
            (index * 2).cast("int").alias(_POSITION),
            F.when(index == 0, F.lit(SENDER_END)).otherwise(before[NODE]).alias(_START),
            F.when(index == size, F.lit(RECEIVER_END)).otherwise(after[NODE]).alias(_END),
            (ended_ns - begun_ns).alias(c.DURATION_NS),
        )

    return F.transform(F.sequence(F.lit(0), size), link)


def _nodes() -> Column:
    return F.transform(
        _PATH,
        lambda stop, index: F.struct(
            (index * 2 + 1).cast("int").alias(_POSITION),
            stop[NODE].alias(_START),
            stop[NODE].alias(_END),
            (stop[DEPARTED_NS] - stop[ARRIVED_NS]).alias(c.DURATION_NS),
        ),
    )


def _percentile(duration_ns: Column, share: float) -> Column:
    enough = F.count("*") * (1 - share) >= _FEWEST_BEYOND
    return F.when(enough, F.percentile(duration_ns, F.lit(share)).cast("long"))
