"""How evenly did the messages of each receiver arrive?

J_n = t'_n - t'_(n-1) - T, where t' are the times of two consecutive deliveries at a receiver and T is the time between
their intended times. Ordering all deliveries takes a sort, so it is done in blocks of 65,536 arrivals; the jitter
between two blocks is computed from the edges that they report. Used only for interrupted runs, or on request.
"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.model.histogram import bucket_of
from crescendo.pipeline import columns as c
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.group_sums import group_sums, merged_sums
from crescendo.pipeline.latency.quantiles import group_statistics
from crescendo.pipeline.source.moments import deliveries
from crescendo.record.table_types import column_name
from crescendo.record.tables import JITTER, JITTER_HISTOGRAM, JITTER_SERIES, JitterRow, JitterSeriesRow

BLOCK_BITS = 16
GAIN = 1 / 16
"""RFC 3550, section 6.4.1: each deviation moves the estimate by a sixteenth of the difference."""

FRACTIONS = 2**16
"""The estimate is summed in fractions of a nanosecond."""

_MAX_DEVIATION_NS = 2**46  # most of a day, so that its fractions fit into 64 bits

_LATE_NS, _FROM_END, _ABS_NS = "late_ns", "from_end", "abs_ns"
_FIRST_NS, _LAST_NS = "first_ns", "last_ns"


def jitter_blocks(received: DataFrame) -> DataFrame:
    """One row per receiver, block and bucket of jitter; the first delivery of a block has no jitter: bucket null."""
    # The time between two deliveries less that between their intended times is the difference of their responses.
    late_ns = (F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)).alias(_LATE_NS)
    block = F.shiftright(c.ARRIVAL, BLOCK_BITS).alias(c.BLOCK)
    arrived = deliveries(received).select(F.col(c.RECEIVER).cast("int").alias(c.RECEIVER), block, c.ARRIVAL, late_ns)
    # Backwards, so that one window gives both the previous delivery and the distance to the end of the block.
    backwards = Window.partitionBy(c.RECEIVER, c.BLOCK).orderBy(F.desc(c.ARRIVAL))
    stepped = arrived.select(
        c.RECEIVER,
        c.BLOCK,
        _LATE_NS,
        (F.col(_LATE_NS) - F.lead(_LATE_NS).over(backwards)).alias(c.JITTER_NS),
        F.row_number().over(backwards).alias(_FROM_END),
    )
    # The weight that a deviation still has in the running estimate at the end of its block. In integers, because sums
    # of floats depend on the order of the files; the weighted sum never exceeds the largest deviation.
    # The first delivery of a block has no deviation; `least` alone would skip the null and return the limit.
    deviation = F.when(F.col(c.JITTER_NS).isNotNull(), F.least(F.abs(c.JITTER_NS), F.lit(_MAX_DEVIATION_NS)))
    faded = F.round(deviation * (GAIN * FRACTIONS) * F.pow(F.lit(1 - GAIN), F.col(_FROM_END) - 1))
    return stepped.groupBy(c.RECEIVER, c.BLOCK, bucket_column(F.col(c.JITTER_NS)).alias(c.BUCKET)).agg(
        F.count("*").alias(c.COUNT),
        F.sum(c.JITTER_NS).alias(c.SUM_NS),
        F.min(c.JITTER_NS).alias(c.MIN_NS),
        F.max(c.JITTER_NS).alias(c.MAX_NS),
        F.sum(F.abs(c.JITTER_NS)).alias(_ABS_NS),
        F.sum(faded.cast("long")).alias(c.FADED_NS),
        F.max(F.when(F.col(c.JITTER_NS).isNull(), F.col(_LATE_NS))).alias(_FIRST_NS),
        F.max(F.when(F.col(_FROM_END) == 1, F.col(_LATE_NS))).alias(_LAST_NS),
    )


def jitter_series(received: DataFrame) -> DataFrame:
    """One row per delivery that has a predecessor at its receiver. For small runs: it sorts all deliveries at once."""
    order = Window.partitionBy(c.RECEIVER).orderBy(c.ARRIVAL)
    late_ns = F.col(c.RECEIVED_NS) - F.col(c.INTENDED_NS)
    stepped = deliveries(received).select(
        F.col(c.RECEIVER).cast("int").alias(c.RECEIVER),
        c.ARRIVAL,
        F.col(c.RECEIVED_NS).alias(column_name(JitterSeriesRow.t_ns)),
        (late_ns - F.lag(late_ns).over(order)).alias(c.JITTER_NS),
    )
    return stepped.where(F.col(c.JITTER_NS).isNotNull()).select(*JITTER_SERIES.column_names)


@dataclass
class _Receiver:
    """The state of a receiver after each block."""

    last_ns: int | None = None  # the response of its latest delivery
    estimate_ns: float = 0.0
    abs_ns: int = 0


def jitter_tables(files: list[Path]) -> tuple[pa.Table, pa.Table]:
    """The tables `jitter` and `jitter_histogram`. Holds one row per receiver and bucket, and one per block."""
    state, edges = _across_blocks(_blocks(files))
    inner = group_sums(files, [c.RECEIVER, c.BUCKET], where=pc.field(c.BUCKET).is_valid())
    counts = pa.concat_tables([inner, _as_counts(edges, inner.schema)])
    statistics = group_statistics(counts, [c.RECEIVER])
    seen = [state[receiver] for receiver in statistics[c.RECEIVER].to_pylist()]
    mean_abs_ns = np.array([item.abs_ns for item in seen]) / statistics[c.COUNT].to_numpy()
    jitter = statistics.append_column(column_name(JitterRow.mean_abs_ns), pa.array(mean_abs_ns, pa.float64()))
    estimate_ns = pa.array([item.estimate_ns for item in seen], pa.float64())
    jitter = jitter.append_column(column_name(JitterRow.rfc3550_ns), estimate_ns)
    histogram = merged_sums(counts[:0], counts, [c.RECEIVER, c.BUCKET], {c.COUNT: "sum"})
    histogram = histogram.sort_by([(c.RECEIVER, "ascending"), (c.BUCKET, "ascending")])
    return jitter.select(JITTER.column_names).cast(JITTER.arrow_schema()), histogram.cast(
        JITTER_HISTOGRAM.arrow_schema()
    )


def _blocks(files: list[Path]) -> list[dict[str, int]]:
    """One row per block, in order: its size, its edges, and what its deviations contribute to the estimate."""
    how = {c.COUNT: "sum", _FIRST_NS: "max", _LAST_NS: "max", _ABS_NS: "sum", c.FADED_NS: "sum"}
    blocks = group_sums(files, [c.RECEIVER, c.BLOCK], how).sort_by([(c.RECEIVER, "ascending"), (c.BLOCK, "ascending")])
    rows: list[dict[str, int]] = blocks.to_pylist()
    return rows


def _across_blocks(blocks: list[dict[str, int]]) -> tuple[dict[int, _Receiver], list[tuple[int, int]]]:
    """The final state of each receiver, and the jitter between its blocks as (receiver, nanoseconds)."""
    state: dict[int, _Receiver] = {}
    edges: list[tuple[int, int]] = []
    for receiver, own in groupby(blocks, key=lambda block: int(block[c.RECEIVER])):
        now = state[receiver] = _Receiver()
        for block in own:
            size = int(block[c.COUNT])
            now.estimate_ns *= (1 - GAIN) ** size
            if now.last_ns is not None:
                step_ns = int(block[_FIRST_NS]) - now.last_ns
                edges.append((receiver, step_ns))
                now.abs_ns += abs(step_ns)
                now.estimate_ns += abs(step_ns) * GAIN * (1 - GAIN) ** (size - 1)
            now.abs_ns += block[_ABS_NS] or 0
            now.estimate_ns += (block[c.FADED_NS] or 0) / FRACTIONS
            now.last_ns = int(block[_LAST_NS])
    return state, edges


def _as_counts(edges: list[tuple[int, int]], schema: pa.Schema) -> pa.Table:
    receivers = np.array([receiver for receiver, _ in edges], np.int64)
    steps_ns = np.array([step_ns for _, step_ns in edges], np.int64)
    columns = {
        c.RECEIVER: receivers, c.BUCKET: bucket_of(steps_ns), c.COUNT: np.ones_like(steps_ns),
        c.SUM_NS: steps_ns, c.MIN_NS: steps_ns, c.MAX_NS: steps_ns,
    }  # fmt: skip
    return pa.table(columns).cast(schema)
