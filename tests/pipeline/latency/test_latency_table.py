"""Latencies, phases and seconds that can be computed by hand. For arbitrary recordings: test_pipeline_tables.py.

All recordings are analysed together, because that costs little more than one.
"""

from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analyzed_together import Analysed, TinyRecordings
from crescendo.record.schema import Flag
from crescendo.record.summary import Latency
from tiny_recordings import END_NS, MEASURE_NS, MS, SECOND_NS, START_NS, Tiny

RECORDINGS = TinyRecordings()


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return RECORDINGS.analyze(spark, tmp_path_factory.mktemp("latency-table"))


def latency(analysed: Analysed, name: str, kind: str) -> Latency:
    row = analysed.summaries[name].latency_of(kind, "measure")
    assert row is not None
    return row


def rows_of(analysed: Analysed, name: str, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(analysed.folder / name / "tables" / table).to_pylist()
    return rows


@RECORDINGS.add
def sent_late() -> Tiny:
    tiny = Tiny()
    tiny.send(0, 0, MEASURE_NS, late_ns=3 * MS)
    tiny.deliver(0, 0, 0, MEASURE_NS, MEASURE_NS + 5 * MS, late_ns=3 * MS)
    return tiny


def test_response_counts_from_the_intended_time_and_transfer_from_the_send(analysed: Analysed) -> None:
    assert latency(analysed, "sent_late", "response").max_ns == 5 * MS
    assert latency(analysed, "sent_late", "transfer").max_ns == 2 * MS


@RECORDINGS.add
def at_edges_of_phases() -> Tiny:
    tiny = Tiny()
    for seq, intended_ns in enumerate((START_NS - 1, START_NS, MEASURE_NS - 1, MEASURE_NS, END_NS - 1, END_NS)):
        tiny.send(0, seq, intended_ns)
        tiny.deliver(0, 0, seq, intended_ns, intended_ns + SECOND_NS)
    return tiny


def test_the_intended_time_decides_the_phase_and_no_message_is_left_out(analysed: Analysed) -> None:
    summary = analysed.summaries["at_edges_of_phases"]
    assert {row.phase: row.count for row in summary.latency if row.kind == "response"} == {
        "warmup": 2, "measure": 2, "outside": 2,
    }  # fmt: skip
    rows = rows_of(analysed, "at_edges_of_phases", "latency_histogram")
    seconds = sorted(row["second"] for row in rows if row["kind"] == "response" for _ in range(row["count"]))
    assert seconds == [-1, 0, 0, 1, 4, 5]


@RECORDINGS.add
def settled_in_ranges() -> Tiny:
    tiny = Tiny()
    tiny.carry(10)
    tiny.accept(0, 0, 8, MEASURE_NS, MEASURE_NS + 10)
    tiny.accept(0, 9, 9, MEASURE_NS, MEASURE_NS + 110)
    return tiny


def test_a_settled_range_weighs_as_many_messages_as_it_covers(analysed: Analysed) -> None:
    row = latency(analysed, "settled_in_ranges", "settle")
    assert (row.count, row.min_ns, row.max_ns, row.mean_ns) == (10, 10, 110, 20.0)


@RECORDINGS.add
def received_before_sent() -> Tiny:
    tiny = Tiny()
    for seq, latency_ns in enumerate((-700, -1, 0, 5)):
        tiny.send(0, seq, MEASURE_NS)
        tiny.deliver(0, 0, seq, MEASURE_NS, MEASURE_NS + latency_ns)
    return tiny


def test_negative_latencies_are_kept_and_counted(analysed: Analysed) -> None:
    row = latency(analysed, "received_before_sent", "response")
    assert (row.count, row.negative, row.min_ns, row.max_ns, row.mean_ns) == (4, 2, -700, 5, -174.0)


@RECORDINGS.add
def one_too_few_for_p95() -> Tiny:
    tiny = Tiny()
    tiny.carry(199)
    return tiny


def test_a_percentile_with_fewer_than_ten_samples_beyond_it_is_withheld(analysed: Analysed) -> None:
    row = latency(analysed, "one_too_few_for_p95", "response")
    # 199 samples leave 9 beyond p95 and 19 beyond p90.
    assert row.percentiles_ns == {"p50": MS, "p90": MS, "p95": None, "p99": None, "p99.9": None, "p99.99": None}
    table = rows_of(analysed, "one_too_few_for_p95", "latency")
    assert {row["kind"]: (row["p90"], row["p95"]) for row in table if row["scope"] == "phase"} == {
        "response": (MS, None), "transfer": (MS, None), "lateness": (0, None),
    }  # fmt: skip


@RECORDINGS.add
def without_schedule() -> Tiny:
    tiny = Tiny(group={"rate": 0})
    tiny.carry(20)
    return tiny


def test_without_a_schedule_there_is_no_response(analysed: Analysed) -> None:
    assert {row.kind for row in analysed.summaries["without_schedule"].latency} == {"transfer"}


@RECORDINGS.add
def corrupt_and_stray() -> Tiny:
    tiny = Tiny()
    tiny.carry(3)
    tiny.deliver(0, -1, -1, 0, MEASURE_NS, int(Flag.CORRUPT))
    tiny.deliver(0, 0, 1, MEASURE_NS, MEASURE_NS, int(Flag.STRAY))
    return tiny


def test_corrupt_and_stray_messages_have_no_latency_and_no_throughput(analysed: Analysed) -> None:
    name = "corrupt_and_stray"
    assert latency(analysed, name, "response").count == latency(analysed, name, "transfer").count == 3
    rows = rows_of(analysed, name, "throughput")
    assert sorted((row["second"], row["role"], row["connection"], row["messages"], row["bytes"]) for row in rows) == [
        (1, "receiver", 0, 3, 300), (1, "sender", 0, 3, 300),
    ]  # fmt: skip
