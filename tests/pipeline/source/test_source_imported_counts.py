"""Runs whose source kept no messages: counts and histograms are used, and nothing is invented."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.model.histogram import bucket_of
from crescendo.model.verdict import Check
from crescendo.pipeline.job import analyze
from crescendo.pipeline.latency.table import latency_table
from crescendo.record.manifest import read_manifest, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import HISTOGRAMS, RATES
from crescendo.record.summary import Summary
from crescendo.record.writer import Recorder
from tiny_recordings import MEASURE_NS, SECOND_NS, START_NS, Tiny, silent


def write_counts(run_dir: Path, tiny: Tiny, rates: list[tuple[Any, ...]], samples_ns: np.ndarray | None = None) -> Path:
    """A recording with counts by second and, for samples, their buckets: half of them in each of two seconds."""
    run_dir.mkdir()
    tiny.write(run_dir)
    recorder = Recorder(run_dir, "import")
    if rates:
        t_ns, peer, role, messages = zip(*rates, strict=True)
        names = (np.array(peer, object), np.array(role, object))
        recorder.append(RATES, len(rates), np.array(t_ns), *names, np.array(messages))
    for number, half in enumerate(np.array_split(samples_ns, 2) if samples_ns is not None else ()):
        buckets, counts = np.unique(bucket_of(half), return_counts=True)
        t_ns = MEASURE_NS + number * SECOND_NS
        recorder.append(HISTOGRAMS, buckets.size, t_ns, "receiver-b", "transfer", buckets.astype(np.int32), counts)
    recorder.close()
    listed = {"files": list(journalled_parts(run_dir)), "system": {"kind": "imported"}}
    write_manifest(run_dir, replace(read_manifest(run_dir), **listed))
    return run_dir


def read(run_dir: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run_dir / "tables" / table).to_pylist()
    return rows


def check(summary: Summary, metric: str) -> Check:
    return next(each for each in summary.verdict.checks if each.metric == metric)


RATES_OF_FOUR_SECONDS = [
    *((MEASURE_NS + second * SECOND_NS, "sender-z", "sender", 100) for second in range(4)),
    *((MEASURE_NS + second * SECOND_NS, name, "receiver", 45 + second) for second in range(4) for name in ("b", "a")),
    (START_NS, "a", "receiver", 7),  # in the warm-up
]


def test_counts_and_histograms_are_judged_and_no_ledger_is_invented(spark: SparkSession, tmp_path: Path) -> None:
    samples_ns = np.random.default_rng(5).lognormal(15, 1, 5000).astype(np.int64)
    samples_ns[:40] -= 10**8  # negative, as with the clocks of two machines
    checks = {"rate": ">= 90", "transfer_p99": "<= 1s", "response_p50": "<= 1s", "lost": 0}
    tiny = Tiny(group={"rate": 0}, checks=checks)
    run = write_counts(tmp_path / "run", tiny, RATES_OF_FOUR_SECONDS, samples_ns)
    summary = analyze(run, spark, silent)
    assert summary.rate.sent == 100.0
    assert summary.rate.sustained == 2 * np.mean([45, 46, 47, 48])
    assert summary.total.sent == 0
    outcomes = {each.metric: each.outcome.value for each in summary.verdict.checks}
    assert outcomes == {"rate": "pass", "transfer_p99": "pass", "response_p50": "invalid", "lost": "invalid"}
    assert "kept no messages" in check(summary, "lost").reasons[0]
    load = next(item for item in summary.validity if item.name == "load was sent")
    assert load.holds
    assert "400 sent and 379 received" in load.detail
    (transfer,) = summary.latency
    ordered = np.sort(samples_ns)
    assert (transfer.kind, transfer.count, transfer.negative) == ("transfer", 5000, int((samples_ns < 0).sum()))
    for name, rank in (("p50", 2500), ("p99", 4950)):
        assert transfer.percentiles_ns[name] == pytest.approx(int(ordered[rank - 1]), rel=1 / 200)
    assert transfer.mean_ns == pytest.approx(float(samples_ns.mean()), rel=0.01)
    assert transfer.min_ns <= ordered[0] <= transfer.min_ns + abs(ordered[0]) / 100
    rows = sorted((row["second"], row["role"], row["connection"], row["messages"]) for row in read(run, "throughput"))
    expected = [(0, "receiver", 0, 7)]
    for second in range(4):
        expected += [(second + 1, "receiver", number, 45 + second) for number in (0, 1)]
        expected.append((second + 1, "sender", 0, 100))
    assert rows == sorted(expected)


def test_a_run_of_counts_without_checks_reports_why_nothing_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    run = write_counts(tmp_path / "run", Tiny(group={"rate": 0}, checks={}), RATES_OF_FOUR_SECONDS)
    summary = analyze(run, spark, silent)
    assert summary.verdict.outcome.value == "invalid"
    assert summary.verdict.reasons == [
        "nothing to judge: the source kept no messages, and no check asks for what it did keep"
    ]


def test_counts_next_to_messages_do_not_count_them_twice(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny(group={"rate": 0})
    tiny.carry(20)
    run = write_counts(tmp_path / "run", tiny, RATES_OF_FOUR_SECONDS, np.arange(1000))
    summary = analyze(run, spark, silent)
    assert sum(row["messages"] for row in read(run, "throughput")) == 40
    assert [(row.kind, row.count) for row in summary.latency] == [("transfer", 20)]
    assert summary.verdict.outcome.value == "pass"


def test_counts_years_apart_take_no_longer_than_others(tmp_path: Path) -> None:
    """Thirty years have a million and a half ranges of ten minutes; only the two with rows are read."""
    seconds = [0, 30 * 365 * 86_400]
    columns = {
        "second": seconds,
        "phase": ["measure"] * 2,
        "kind": ["transfer"] * 2,
        "bucket": [1, 2],
        "count": [20, 20],
    }
    times = {name: [1, 2] for name in ("sum_ns", "min_ns", "max_ns")}
    pq.write_table(pa.table(columns | times), tmp_path / "part.parquet")
    rows = latency_table([tmp_path / "part.parquet"]).table.to_pylist()
    assert [(row["second"], row["count"]) for row in rows if row["scope"] == "second"] == [
        (each, 20) for each in seconds
    ]


def test_a_run_that_sent_nothing_is_not_an_import(spark: SparkSession, tmp_path: Path) -> None:
    run = write_counts(tmp_path / "run", Tiny(checks={"rate": "> 0"}), RATES_OF_FOUR_SECONDS)
    write_manifest(run, replace(read_manifest(run), system={"kind": "relay"}))
    assert analyze(run, spark, silent).verdict.reasons == ["nothing was sent"]


def test_counts_that_are_all_zero_are_not_a_load(spark: SparkSession, tmp_path: Path) -> None:
    rates = [(MEASURE_NS, "a", "sender", 0), (MEASURE_NS, "b", "receiver", 0)]
    run = write_counts(tmp_path / "run", Tiny(group={"rate": 0}, checks={"rate": "> 0"}), rates)
    summary = analyze(run, spark, silent)
    assert summary.verdict.outcome.value == "invalid"
    assert summary.verdict.reasons == ["the counts are all zero"]
