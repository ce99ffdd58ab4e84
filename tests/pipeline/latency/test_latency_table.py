"""Latencies, phases and seconds that can be computed by hand. For arbitrary recordings: test_pipeline_tables.py."""

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.record.schema import Flag
from crescendo.record.summary import Latency, Summary
from tiny_recordings import END_NS, MEASURE_NS, MS, SECOND_NS, START_NS, Tiny, silent


def latency(summary: Summary, kind: str, phase: str = "measure") -> Latency:
    row = summary.latency_of(kind, phase)
    assert row is not None
    return row


def test_response_counts_from_the_intended_time_and_transfer_from_the_send(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.send(0, 0, MEASURE_NS, late_ns=3 * MS)
    tiny.deliver(0, 0, 0, MEASURE_NS, MEASURE_NS + 5 * MS, late_ns=3 * MS)
    summary = analyze(tiny.write(tmp_path), spark, silent)
    assert latency(summary, "response").max_ns == 5 * MS
    assert latency(summary, "transfer").max_ns == 2 * MS


def test_the_intended_time_decides_the_phase_and_no_message_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    for seq, intended_ns in enumerate((START_NS - 1, START_NS, MEASURE_NS - 1, MEASURE_NS, END_NS - 1, END_NS)):
        tiny.send(0, seq, intended_ns)
        tiny.deliver(0, 0, seq, intended_ns, intended_ns + SECOND_NS)
    summary = analyze(tiny.write(tmp_path), spark, silent)
    assert {row.phase: row.count for row in summary.latency if row.kind == "response"} == {
        "warmup": 2, "measure": 2, "outside": 2,
    }  # fmt: skip
    rows = pq.read_table(tmp_path / "tables" / "latency_histogram").to_pylist()
    seconds = sorted(row["second"] for row in rows if row["kind"] == "response" for _ in range(row["count"]))
    assert seconds == [-1, 0, 0, 1, 4, 5]


def test_a_settled_range_weighs_as_many_messages_as_it_covers(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.carry(10)
    tiny.accept(0, 0, 8, MEASURE_NS, MEASURE_NS + 10)
    tiny.accept(0, 9, 9, MEASURE_NS, MEASURE_NS + 110)
    row = latency(analyze(tiny.write(tmp_path), spark, silent), "settle")
    assert (row.count, row.min_ns, row.max_ns, row.mean_ns) == (10, 10, 110, 20.0)


def test_negative_latencies_are_kept_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    for seq, latency_ns in enumerate((-700, -1, 0, 5)):
        tiny.send(0, seq, MEASURE_NS)
        tiny.deliver(0, 0, seq, MEASURE_NS, MEASURE_NS + latency_ns)
    row = latency(analyze(tiny.write(tmp_path), spark, silent), "response")
    assert (row.count, row.negative, row.min_ns, row.max_ns, row.mean_ns) == (4, 2, -700, 5, -174.0)


def test_a_percentile_with_fewer_than_ten_samples_beyond_it_is_withheld(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.carry(199)
    row = latency(analyze(tiny.write(tmp_path), spark, silent), "response")
    # 199 samples leave 9 beyond p95 and 19 beyond p90.
    assert row.percentiles_ns == {"p50": MS, "p90": MS, "p95": None, "p99": None, "p99.9": None, "p99.99": None}
    table = pq.read_table(tmp_path / "tables" / "latency").to_pylist()
    assert {row["kind"]: (row["p90"], row["p95"]) for row in table if row["scope"] == "phase"} == {
        "response": (MS, None), "transfer": (MS, None), "lateness": (0, None),
    }  # fmt: skip


def test_without_a_schedule_there_is_no_response(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny(group={"rate": 0})
    tiny.carry(20)
    assert {row.kind for row in analyze(tiny.write(tmp_path), spark, silent).latency} == {"transfer"}


def test_corrupt_and_stray_messages_have_no_latency_and_no_throughput(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.carry(3)
    tiny.deliver(0, -1, -1, 0, MEASURE_NS, int(Flag.CORRUPT))
    tiny.deliver(0, 0, 1, MEASURE_NS, MEASURE_NS, int(Flag.STRAY))
    summary = analyze(tiny.write(tmp_path), spark, silent)
    assert latency(summary, "response").count == latency(summary, "transfer").count == 3
    rows = pq.read_table(tmp_path / "tables" / "throughput").to_pylist()
    assert sorted((row["second"], row["role"], row["connection"], row["messages"], row["bytes"]) for row in rows) == [
        (1, "receiver", 0, 3, 300), (1, "sender", 0, 3, 300),
    ]  # fmt: skip
