"""Where does the time of a request go?

Spans are what clients and brokers timed themselves: whole requests, and the tiers inside them. Their durations are
counted in the same buckets as latencies, by action and outcome; percentiles come from the counts. A tier that is named
by its request, a slash and its own name has its share in that request; the share of any other action is that in the
one with the most time, which is the whole where actions are tiers of one request.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import (
    ACTION,
    BUCKET,
    COUNT,
    DURATION_NS,
    MAX_NS,
    MIN_NS,
    OUTCOME,
    PHASE,
    SECOND,
    SUM_NS,
    T_NS,
)
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.group_sums import folded
from crescendo.pipeline.latency.quantiles import STATISTICS, described
from crescendo.pipeline.source.moments import Phases

TOTAL_NS, SHARE = "total_ns", "share"
TIER = "/"
SPANS_SCHEMA = pa.schema(
    [
        (PHASE, pa.string()), (ACTION, pa.string()), (OUTCOME, pa.string()), *STATISTICS,
        (TOTAL_NS, pa.float64()), (SHARE, pa.float64()),
    ]
)  # fmt: skip


def span_histogram(spans: DataFrame, timeline: Phases) -> DataFrame:
    """One row per second, phase, action, outcome and bucket of duration."""
    counts = (
        spans.select(
            timeline.second_of(F.col(T_NS)).alias(SECOND),
            timeline.phase_of(F.col(T_NS)).alias(PHASE),
            ACTION,
            OUTCOME,
            bucket_column(F.col(DURATION_NS)).alias(BUCKET),
            DURATION_NS,
        )
        .groupBy(SECOND, PHASE, ACTION, OUTCOME, BUCKET)
        .agg(
            F.count("*").alias(COUNT),
            F.sum(DURATION_NS).alias(SUM_NS),
            F.min(DURATION_NS).alias(MIN_NS),
            F.max(DURATION_NS).alias(MAX_NS),
        )
    )
    return counts.withColumn(PHASE, timeline.phase_name(F.col(PHASE)))


def spans_table(files: list[Path]) -> pa.Table:
    """One row per phase and action, and where it had several outcomes one more for each of them."""
    counts = folded(files, [PHASE, ACTION, OUTCOME, BUCKET])
    by_action = described(counts, [PHASE, ACTION])
    by_outcome = described(counts, [PHASE, ACTION, OUTCOME])
    rows = by_action.append_column(OUTCOME, pa.nulls(by_action.num_rows, pa.string())).to_pylist()
    several = _several(by_outcome.to_pylist())
    wholes = _wholes(rows)
    for row in (*rows, *several):
        whole_ns = wholes[row[PHASE], row[ACTION]]
        row[TOTAL_NS] = _total_ns(row)
        row[SHARE] = row[TOTAL_NS] / whole_ns if whole_ns else None
    return pa.Table.from_pylist([*rows, *several], SPANS_SCHEMA)


def _wholes(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The time of which each action of each phase has its share."""
    totals = {(row[PHASE], row[ACTION]): _total_ns(row) for row in rows}
    longest: dict[str, float] = {}
    for (phase, _), total_ns in totals.items():
        longest[phase] = max(longest.get(phase, 0.0), total_ns)
    requests = {(phase, action.rpartition(TIER)[0]) for phase, action in totals if TIER in action}
    wholes: dict[tuple[str, str], float] = {}
    for phase, action in totals:
        request = action if (phase, action) in requests else action.rpartition(TIER)[0]
        wholes[phase, action] = totals.get((phase, request), longest[phase])
    return wholes


def _several(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of actions that did not always end the same way."""
    outcomes: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row[PHASE], row[ACTION]
        outcomes[key] = outcomes.get(key, 0) + 1
    return [row for row in rows if outcomes[row[PHASE], row[ACTION]] > 1]


def _total_ns(row: dict[str, Any]) -> float:
    return float(row["mean_ns"] * row[COUNT])
