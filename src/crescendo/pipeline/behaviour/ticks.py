"""How many messages were due, sent and received in each tick of the run?

A tick is 100 ms in runs of up to an hour. The count, the first and last time and the sum of the times within a tick are
enough to find every gap longer than two ticks, and the area under a backlog, to the nanosecond and without sorting
messages. Only counts; `backlog` and `outages` interpret the counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    END_NS,
    FLOW,
    INTENDED_NS,
    MESSAGES,
    OFFSET_NS,
    RECEIVED_NS,
    RECEIVER,
    SENDER,
    SENT_NS,
    SIDE,
    START_NS,
    T_NS,
    TICK,
)
from crescendo.pipeline.source.connections import ConnectionColumns, Connections
from crescendo.pipeline.source.ingest import Frames
from crescendo.pipeline.source.moments import Timeline, deliveries, first_attempts
from crescendo.pipeline.source.per_run import UNKNOWN, per_run

DUE, SENT, RECEIVED = 0, 1, 2
"""Values of the column `side`."""

_TICKS_NS = (10**8, 10**9, 10**10, 60 * 10**9, 600 * 10**9)
_MAX_TICKS = 36_000
_MAX_ROWS = 2_000_000


@dataclass(frozen=True)
class Ticks:
    """How time is divided: tick 0 starts with second 0."""

    origin_ns: int
    length_ns: int

    def start_ns(self, tick: int) -> int:
        return self.origin_ns + tick * self.length_ns


def ticks_for(timeline: Timeline, connections: Connections) -> Ticks:
    """The shortest tick with at most 36,000 ticks in the run, and few enough that all flows fit into memory."""
    span_ns = max((phase.end_ns for phase in timeline.phases), default=timeline.origin_ns) - timeline.origin_ns
    flows = len(connections.subscriptions) + 2 * len(connections.flows)
    limit = min(_MAX_TICKS, _MAX_ROWS // max(flows, 1))
    length_ns = next((length for length in _TICKS_NS if span_ns <= length * limit), _TICKS_NS[-1])
    return Ticks(timeline.origin_ns, length_ns)


def tick_counts(frames: Frames, ticks: Sequence[Ticks], connections: ConnectionColumns) -> DataFrame:
    """One row per run, side, flow and tick. Senders that owe the same set of subscriptions form one flow.

    `ticks` has those of each run.
    """
    keys = connections.run_keys
    sent = first_attempts(frames.sent).select(
        *keys,
        connections.flow_column(F.col(SENDER)).alias(FLOW),
        F.stack(F.lit(2), F.lit(DUE), F.col(INTENDED_NS), F.lit(SENT), F.col(SENT_NS)).alias(SIDE, T_NS),
    )
    received = deliveries(frames.received).select(
        *keys,
        connections.subscription_column(F.col(RECEIVER)).alias(FLOW),
        F.lit(RECEIVED).alias(SIDE),
        F.col(RECEIVED_NS).alias(T_NS),
    )
    counts = _counted_by_tick(sent, ticks, keys).unionByName(_counted_by_tick(received, ticks, keys))
    return counts.where(F.col(FLOW) != UNKNOWN)


def _counted_by_tick(rows: DataFrame, ticks: Sequence[Ticks], keys: list[str]) -> DataFrame:
    since_ns = F.col(T_NS) - per_run([each.origin_ns for each in ticks])
    length_ns = per_run([each.length_ns for each in ticks])
    # Integer division that rounds down: a message before the origin is in tick -1, not in tick 0.
    offset_ns = F.pmod(since_ns, length_ns)
    return (
        rows.withColumn(OFFSET_NS, offset_ns)
        .groupBy(*keys, SIDE, FLOW, F.call_function("div", since_ns - F.col(OFFSET_NS), length_ns).alias(TICK))
        .agg(
            F.count("*").alias(MESSAGES),
            F.min(T_NS).alias(START_NS),
            F.max(T_NS).alias(END_NS),
            F.sum(OFFSET_NS).alias(OFFSET_NS),
        )
    )
