"""What is the value of a metric in one run?

The metrics of checks, from the summary of a run, in total or in one slice (`orders.response_p99`); requests and their
tiers from the table of spans (`span.CSndReq#SendMessage/database.p50`); readings of inspectors from their table
(`reading.inspector-process/broker/cpu_percent.mean`); jitter, bursts and refused messages from theirs. A metric without
a value in this run is left out, never guessed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crescendo.model.campaign import BURST, ERROR, JITTER, READING, SPAN
from crescendo.model.metrics import metric_of, split_metric
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.run_evidence import MeasuredRecovery
from crescendo.record import tables
from crescendo.record.manifest import read_manifest
from crescendo.record.published_tables import published_tables
from crescendo.record.summary import Latency, Ledger, Rate, Summary
from crescendo.record.table_reader import rows
from crescendo.record.tables import READING_SUMMARY, SPANS
from crescendo.record.timeline import MEASURE


@dataclass(frozen=True)
class SummarizedEvidence:
    """The part of a summary that metrics are computed from."""

    counts: Ledger | None
    rate: Rate
    latency: Mapping[str, Latency]
    violations: float | None = None
    statistics: Mapping[str, PeerStatistics] = field(default_factory=dict)
    recoveries: Sequence[MeasuredRecovery] | None = None  # a summary has only what a check judged
    longest_outage_ns: int = 0
    load_ended_ns: Mapping[int, int] = field(default_factory=dict)
    run_dir: Path | None = None  # whose tables are read

    def rows(self, table: str) -> Sequence[Any]:
        return () if self.run_dir is None else rows(self.run_dir, published_tables()[table])


def metric_values(run_dir: Path, summary: Summary, metrics: Sequence[str]) -> dict[str, float]:
    """metric -> value in base units, of those that this run has."""
    found = {}
    for name in metrics:
        table = next((prefix for prefix in TABLE_VALUES if name.startswith(prefix)), None)
        if table is None:
            value = summary_value(summary, name, run_dir)
        else:
            value = TABLE_VALUES[table](run_dir, name.removeprefix(table))
        if value is not None:
            found[name] = float(value)
    return found


def summary_value(summary: Summary, name: str, run_dir: Path | None = None) -> float | None:
    """The value of a metric of checks; None if there is none, or only in tables and without `run_dir`."""
    metric, (slice_name, _) = metric_of(name), split_metric(name)
    evidence = _evidence(summary, slice_name, run_dir)
    unread = bool(metric.table) and (run_dir is None or bool(slice_name))
    value = None if evidence is None or unread else metric.value(evidence)
    return (
        next((check.value for check in summary.verdict.checks if check.metric == name), None)
        if value is None
        else value
    )


def _evidence(summary: Summary, slice_name: str, run_dir: Path | None) -> SummarizedEvidence | None:
    if not slice_name:
        return SummarizedEvidence(summary.total, summary.rate, _measured(summary.latency), run_dir=run_dir)
    for each in summary.slices:
        if each.name == slice_name:
            return SummarizedEvidence(each.ledger, each.rate, _measured(each.latency))
    return None


def _measured(latencies: Sequence[Latency]) -> dict[str, Latency]:
    return {row.kind: row for row in latencies if row.phase == MEASURE}


def _span_value(run_dir: Path, name: str) -> float | None:
    action, _, statistic = name.rpartition(".")
    for row in rows(run_dir, SPANS):
        if row.action == action and row.phase == MEASURE and row.outcome is None:
            known = {"count": row.statistics.count, "mean": row.statistics.mean_ns, "p50": row.statistics.p50,
                     "p90": row.statistics.p90, "p99": row.statistics.p99}  # fmt: skip
            return known.get(statistic)
    return None


def _jitter_value(run_dir: Path, name: str) -> float | None:
    group, _, statistic = name.rpartition(".")
    among = _receivers(run_dir, group)
    found = [row for row in rows(run_dir, tables.JITTER) if among is None or row.receiver in among]
    if not found:
        return None
    count = sum(row.statistics.count for row in found)
    return {
        "max": max(row.statistics.max_ns for row in found),
        "min": min(row.statistics.min_ns for row in found),
        "mean": sum(row.mean_abs_ns * row.statistics.count for row in found) / max(count, 1),
    }.get(statistic)


def _burst_value(run_dir: Path, name: str) -> float:
    """Without an outage there was no burst."""
    group, _, statistic = name.rpartition(".")
    among = _receivers(run_dir, group)
    found = [row for row in rows(run_dir, tables.BURSTS) if among is None or row.receiver in among]
    return float(sum(getattr(row, statistic) for row in found))


def _receivers(run_dir: Path, group: str) -> set[int] | None:
    """The receivers of a group; None means all of them."""
    if not group:
        return None
    connections = read_manifest(run_dir).connections
    return {each.id for each in connections if each.role == "receiver" and each.group == group}


def _error_value(run_dir: Path, name: str) -> float:
    outcome = name.rpartition(".")[0]
    return float(sum(row.messages for row in rows(run_dir, tables.ERRORS) if row.outcome == outcome))


def _reading_value(run_dir: Path, name: str) -> float | None:
    path, _, statistic = name.rpartition(".")
    for row in rows(run_dir, READING_SUMMARY):
        if f"{row.source}/{row.entity}/{row.metric}" == path:
            return {"mean": row.mean, "peak": row.peak}.get(statistic)
    return None


TABLE_VALUES: dict[str, Callable[[Path, str], float | None]] = {
    SPAN: _span_value,
    READING: _reading_value,
    JITTER: _jitter_value,
    BURST: _burst_value,
    ERROR: _error_value,
}
"""Prefix of a metric that is read from a table -> its value in a recording."""
