"""Where does the time of a request go?

Spans are timed by clients and brokers themselves: whole requests, and the tiers inside them. Their durations are
counted in the same buckets as latencies, by action and outcome; percentiles come from the counts. A tier named
`request/tier` has its share of that request. Any other action has its share of the action with the largest total time
in its phase, which is the whole request when the actions are its tiers. Judges nothing.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline import columns as c
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.latency.buckets import bucket_column
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.latency.quantiles import MEAN_NS, group_statistics
from crescendo.pipeline.source.ingest import frame_of
from crescendo.pipeline.source.moments import Timeline
from crescendo.record.schema import SPANS as RECORDED_SPANS
from crescendo.record.table_types import column_name
from crescendo.record.tables import SPANS, SpanRow

TOTAL_NS, SHARE = column_name(SpanRow.total_ns), column_name(SpanRow.share)
TIER = "/"


def build_span_histogram(context: AnalysisContext) -> DataFrame | None:
    """None for a recording without spans."""
    if not context.recording.files(RECORDED_SPANS):
        return None
    return span_histogram(frame_of(context.spark, context.recording, RECORDED_SPANS), context.timeline)


def span_histogram(spans: DataFrame, timeline: Timeline) -> DataFrame:
    """One row per second, phase, action, outcome and bucket of duration."""
    counts = (
        spans.select(
            timeline.second_of(F.col(c.T_NS)).alias(c.SECOND),
            timeline.phase_of(F.col(c.T_NS)).alias(c.PHASE),
            c.ACTION,
            c.OUTCOME,
            bucket_column(F.col(c.DURATION_NS)).alias(c.BUCKET),
            c.DURATION_NS,
        )
        .groupBy(c.SECOND, c.PHASE, c.ACTION, c.OUTCOME, c.BUCKET)
        .agg(
            F.count("*").alias(c.COUNT),
            F.sum(c.DURATION_NS).alias(c.SUM_NS),
            F.min(c.DURATION_NS).alias(c.MIN_NS),
            F.max(c.DURATION_NS).alias(c.MAX_NS),
        )
    )
    return counts.withColumn(c.PHASE, timeline.phase_name(F.col(c.PHASE)))


def spans_table(files: list[Path]) -> pa.Table:
    """One row per phase and action, and one more per outcome for actions with several outcomes."""
    counts = group_sums(files, [c.PHASE, c.ACTION, c.OUTCOME, c.BUCKET])
    by_action = group_statistics(counts, [c.PHASE, c.ACTION])
    by_outcome = group_statistics(counts, [c.PHASE, c.ACTION, c.OUTCOME])
    rows = by_action.append_column(c.OUTCOME, pa.nulls(by_action.num_rows, pa.string())).to_pylist()
    outcome_rows = _with_several_outcomes(by_outcome.to_pylist())
    references = _reference_totals(rows)
    for row in (*rows, *outcome_rows):
        reference_ns = references[row[c.PHASE], row[c.ACTION]]
        row[TOTAL_NS] = _total_ns(row)
        row[SHARE] = row[TOTAL_NS] / reference_ns if reference_ns else None
    return pa.Table.from_pylist([*rows, *outcome_rows], SPANS.arrow_schema())


def _reference_totals(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The total time that each action of each phase has its share of."""
    totals = {(row[c.PHASE], row[c.ACTION]): _total_ns(row) for row in rows}
    longest: dict[str, float] = {}
    for (phase, _), total_ns in totals.items():
        longest[phase] = max(longest.get(phase, 0.0), total_ns)
    requests = {(phase, action.rpartition(TIER)[0]) for phase, action in totals if TIER in action}
    references: dict[tuple[str, str], float] = {}
    for phase, action in totals:
        request = action if (phase, action) in requests else action.rpartition(TIER)[0]
        references[phase, action] = totals.get((phase, request), longest[phase])
    return references


def _with_several_outcomes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of actions that ended in more than one outcome."""
    outcomes: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row[c.PHASE], row[c.ACTION]
        outcomes[key] = outcomes.get(key, 0) + 1
    return [row for row in rows if outcomes[row[c.PHASE], row[c.ACTION]] > 1]


def _total_ns(row: dict[str, Any]) -> float:
    return float(row[MEAN_NS] * row[c.COUNT])
