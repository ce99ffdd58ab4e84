"""How evenly did the messages of each receiver arrive?

J_n = t'_n - t'_(n-1) - T, where t' are the times of two deliveries that follow each other at a receiver and T is the
time between their intentions. Order costs a sort of all deliveries, so that is done in blocks of 65,536 arrivals, and
what happens between blocks is put right from the edges that they report. Made only where it is asked for.
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
from crescendo.pipeline.columns import (
    ARRIVAL,
    BLOCK,
    BUCKET,
    COUNT,
    FADED_NS,
    INTENDED_NS,
    JITTER_NS,
    MAX_NS,
    MIN_NS,
    RECEIVED_NS,
    RECEIVER,
    SUM_NS,
)
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.group_sums import added, folded
from crescendo.pipeline.latency.quantiles import STATISTICS, described
from crescendo.pipeline.source.moments import deliveries

BLOCK_BITS = 16
GAIN = 1 / 16
"""Of RFC 3550, section 6.4.1: each deviation moves the estimate by a sixteenth of what it is off."""

FRACTIONS = 2**16
"""The estimate is added up in fractions of a nanosecond."""

_MOST_NS = 2**46  # most of a day, so that its fractions fit into 64 bits

MEAN_ABS_NS, RFC_3550_NS = "mean_abs_ns", "rfc3550_ns"
JITTER_SCHEMA = pa.schema(
    [(RECEIVER, pa.int32()), *STATISTICS, (MEAN_ABS_NS, pa.float64()), (RFC_3550_NS, pa.float64())]
)
HISTOGRAM_SCHEMA = pa.schema([(RECEIVER, pa.int32()), (BUCKET, pa.int32()), (COUNT, pa.int64())])

_LATE_NS, _FROM_END, _ABS_NS = "late_ns", "from_end", "abs_ns"
_FIRST_NS, _LAST_NS = "first_ns", "last_ns"


def jitter_blocks(received: DataFrame) -> DataFrame:
    """One row per receiver, block and bucket of jitter; the first delivery of a block has none, and bucket null."""
    # The difference of two deliveries less that of their intentions is the difference of their responses.
    late_ns = (F.col(RECEIVED_NS) - F.col(INTENDED_NS)).alias(_LATE_NS)
    block = F.shiftright(ARRIVAL, BLOCK_BITS).alias(BLOCK)
    arrived = deliveries(received).select(F.col(RECEIVER).cast("int").alias(RECEIVER), block, ARRIVAL, late_ns)
    # Backwards, so that one pass knows both the delivery before and how far it is to the end of the block.
    backwards = Window.partitionBy(RECEIVER, BLOCK).orderBy(F.desc(ARRIVAL))
    stepped = arrived.select(
        RECEIVER,
        BLOCK,
        _LATE_NS,
        (F.col(_LATE_NS) - F.lead(_LATE_NS).over(backwards)).alias(JITTER_NS),
        F.row_number().over(backwards).alias(_FROM_END),
    )
    # What a deviation is still worth in the running estimate at the end of its block. In whole numbers, because sums of
    # floats depend on the order of the files; all of them together are no more than the largest deviation.
    # The first of a block has none; `least` alone would pass over that and take the limit.
    deviation = F.when(F.col(JITTER_NS).isNotNull(), F.least(F.abs(JITTER_NS), F.lit(_MOST_NS)))
    faded = F.round(deviation * (GAIN * FRACTIONS) * F.pow(F.lit(1 - GAIN), F.col(_FROM_END) - 1))
    return stepped.groupBy(RECEIVER, BLOCK, bucket_column(F.col(JITTER_NS)).alias(BUCKET)).agg(
        F.count("*").alias(COUNT),
        F.sum(JITTER_NS).alias(SUM_NS),
        F.min(JITTER_NS).alias(MIN_NS),
        F.max(JITTER_NS).alias(MAX_NS),
        F.sum(F.abs(JITTER_NS)).alias(_ABS_NS),
        F.sum(faded.cast("long")).alias(FADED_NS),
        F.max(F.when(F.col(JITTER_NS).isNull(), F.col(_LATE_NS))).alias(_FIRST_NS),
        F.max(F.when(F.col(_FROM_END) == 1, F.col(_LATE_NS))).alias(_LAST_NS),
    )


@dataclass
class _Receiver:
    """What is known of a receiver, block by block."""

    last_ns: int | None = None  # the response of its last delivery so far
    estimate_ns: float = 0.0
    abs_ns: int = 0


def jitter_tables(files: list[Path]) -> tuple[pa.Table, pa.Table]:
    """The tables `jitter` and `jitter_histogram`. Holds a row for a receiver and bucket, and one for a block."""
    state, edges = _walked(_blocks(files))
    inner = folded(files, [RECEIVER, BUCKET], where=pc.field(BUCKET).is_valid())
    counts = pa.concat_tables([inner, _as_counts(edges, inner.schema)])
    statistics = described(counts, [RECEIVER])
    seen = [state[receiver] for receiver in statistics[RECEIVER].to_pylist()]
    mean_abs_ns = np.array([item.abs_ns for item in seen]) / statistics[COUNT].to_numpy()
    jitter = statistics.append_column(MEAN_ABS_NS, pa.array(mean_abs_ns, pa.float64()))
    jitter = jitter.append_column(RFC_3550_NS, pa.array([item.estimate_ns for item in seen], pa.float64()))
    histogram = added(counts[:0], counts, [RECEIVER, BUCKET], {COUNT: "sum"})
    histogram = histogram.sort_by([(RECEIVER, "ascending"), (BUCKET, "ascending")])
    return jitter.select(JITTER_SCHEMA.names).cast(JITTER_SCHEMA), histogram.cast(HISTOGRAM_SCHEMA)


def _blocks(files: list[Path]) -> list[dict[str, int]]:
    """One row a block, in order: its size, its edges, and what its deviations left in the estimate."""
    how = {COUNT: "sum", _FIRST_NS: "max", _LAST_NS: "max", _ABS_NS: "sum", FADED_NS: "sum"}
    blocks = folded(files, [RECEIVER, BLOCK], how).sort_by([(RECEIVER, "ascending"), (BLOCK, "ascending")])
    rows: list[dict[str, int]] = blocks.to_pylist()
    return rows


def _walked(blocks: list[dict[str, int]]) -> tuple[dict[int, _Receiver], list[tuple[int, int]]]:
    """Follow each receiver through its blocks; gives its end, and the jitter between blocks."""
    state: dict[int, _Receiver] = {}
    edges: list[tuple[int, int]] = []
    for receiver, mine in groupby(blocks, key=lambda block: int(block[RECEIVER])):
        now = state[receiver] = _Receiver()
        for block in mine:
            size = int(block[COUNT])
            now.estimate_ns *= (1 - GAIN) ** size
            if now.last_ns is not None:
                step_ns = int(block[_FIRST_NS]) - now.last_ns
                edges.append((receiver, step_ns))
                now.abs_ns += abs(step_ns)
                now.estimate_ns += abs(step_ns) * GAIN * (1 - GAIN) ** (size - 1)
            now.abs_ns += block[_ABS_NS] or 0
            now.estimate_ns += (block[FADED_NS] or 0) / FRACTIONS
            now.last_ns = int(block[_LAST_NS])
    return state, edges


def _as_counts(edges: list[tuple[int, int]], schema: pa.Schema) -> pa.Table:
    receivers = np.array([receiver for receiver, _ in edges], np.int64)
    steps_ns = np.array([step_ns for _, step_ns in edges], np.int64)
    columns = {
        RECEIVER: receivers, BUCKET: bucket_of(steps_ns), COUNT: np.ones_like(steps_ns),
        SUM_NS: steps_ns, MIN_NS: steps_ns, MAX_NS: steps_ns,
    }  # fmt: skip
    return pa.table(columns).cast(schema)
