"""From a recording to tables and a summary: complete, repeatable, honest and quiet."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.pipeline.job import analyze
from crescendo.pipeline.spark import evaluation
from crescendo.record.manifest import State, read_manifest, sha256_of, write_manifest
from crescendo.record.summary import Summary, read_summary
from tiny_recordings import MEASURE_NS, MS, RECEIVER_PEER, SECOND_NS, SENDER_PEER, START_NS, Tiny, silent

TABLES = [
    "backlog", "checks", "effects", "latency", "latency_histogram", "ledger", "ledger_ranges", "little", "outages",
    "steady_state", "throughput",
]  # fmt: skip


def content(run_dir: Path) -> dict[str, list[str]]:
    """Every table as sorted text: its content, however it is split into files."""
    tables: dict[str, list[str]] = {}
    for table in sorted((run_dir / "tables").iterdir()):
        rows: list[dict[str, Any]] = pq.read_table(table).to_pylist()
        tables[table.name] = sorted(str(sorted(row.items())) for row in rows)
    return tables


def flawed() -> Tiny:
    """A run with loss, duplicates and negative latency, to have rows in every table."""
    tiny = Tiny(group={"senders": 2, "rate": 5.0})
    tiny.carry(30)
    for seq in range(5):
        tiny.send(1, seq, START_NS + seq * MS)
    tiny.deliver(0, 1, 0, START_NS, START_NS - 5)
    tiny.deliver(0, 1, 0, START_NS, START_NS + 5)
    tiny.accept(1, 0, 4, START_NS, START_NS + MS)
    return tiny


@dataclass(frozen=True)
class Analysed:
    """A flawed run in a directory with an awkward name, analysed once."""

    run_dir: Path
    summary: Summary
    progress: list[str]


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    run_dir = tmp_path_factory.mktemp("job") / "a run [1] {x,y} *? at 12:30 é %20"
    run_dir.mkdir()
    progress: list[str] = []
    return Analysed(run_dir, analyze(flawed().write(run_dir), spark, progress.append), progress)


def test_the_summary_on_disk_equals_the_one_returned_and_no_scratch_files_remain(analysed: Analysed) -> None:
    assert read_summary(analysed.run_dir) == analysed.summary
    assert analysed.progress
    assert sorted(path.name for path in (analysed.run_dir / "tables").iterdir()) == TABLES
    hidden = [path for path in (analysed.run_dir / "tables").rglob("*") if path.name.startswith((".", "_"))]
    assert hidden == []


def test_a_directory_may_have_any_name(analysed: Analysed) -> None:
    assert analysed.summary.total.lost == 4


def test_analysing_twice_gives_the_same_tables_interpreted_or_compiled(
    spark: SparkSession, analysed: Analysed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "INTERPRETED_ROWS", 0)
    tables = content(analysed.run_dir)
    assert {name for name, rows in tables.items() if not rows} == {"effects", "outages"}
    assert analyze(analysed.run_dir, spark, silent) == analysed.summary
    assert content(analysed.run_dir) == tables


def test_throughput_equals_a_count_of_the_raw_parts(analysed: Analysed) -> None:
    sent, received = (pq.read_table(analysed.run_dir / table) for table in ("sent", "received"))
    query = f"""
        SELECT (sent_ns - {START_NS}) // {SECOND_NS} AS second, 'sender' AS role, sender AS connection,
               count(*) AS messages, sum(size)::BIGINT AS bytes
        FROM sent GROUP BY ALL
        UNION ALL
        SELECT floor((received_ns - {START_NS}) / {SECOND_NS}), 'receiver', receiver, count(*), sum(size)::BIGINT
        FROM received GROUP BY ALL
    """  # noqa: S608
    with duckdb.connect() as database:
        database.register("sent", sent)
        database.register("received", received)
        expected = database.execute(query).fetchall()
    rows = pq.read_table(analysed.run_dir / "tables" / "throughput").to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


def test_an_empty_recording_is_analysed_and_proves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    summary = analyze(Tiny().write(tmp_path), spark, silent)
    assert summary.verdict.outcome is Outcome.INVALID
    assert summary.verdict.reasons == ["nothing was sent"]
    assert summary.latency == []
    assert summary.total.sent == 0
    assert sorted(content(tmp_path)) == TABLES


def test_damaged_parts_are_named_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """One has a flipped byte; another is not Parquet, although its hash is right."""
    tiny = Tiny()
    tiny.carry(20)
    manifest = read_manifest(tiny.write(tmp_path))
    flipped = tmp_path / "received" / f"{RECEIVER_PEER}-00000.parquet"
    octets = bytearray(flipped.read_bytes())
    octets[len(octets) // 2] ^= 1
    flipped.write_bytes(octets)
    forged = tmp_path / "sent" / f"{SENDER_PEER}-00000.parquet"
    forged.write_bytes(b"PAR1 but not really PAR1")
    hashed = {"octets": forged.stat().st_size, "sha256": sha256_of(forged)}
    files = [replace(file, **hashed) if file.table == "sent" else file for file in manifest.files]
    write_manifest(tmp_path, replace(manifest, files=files))
    summary = analyze(tmp_path, spark, silent)
    intact = next(entry for entry in summary.validity if entry.name == "every part intact")
    assert not intact.holds
    assert flipped.name in intact.detail
    assert forged.name in intact.detail
    assert "is not readable as Parquet" in intact.detail
    assert (summary.total.sent, summary.total.delivered) == (0, 0)
    assert summary.verdict.outcome is Outcome.INVALID


def test_a_lost_peer_invalidates_the_checks_that_need_it_but_a_proven_duplicate_still_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    tiny = Tiny(checks={"lost": 0, "duplicated": 0}, ended={RECEIVER_PEER: "lost"}, state=State.INCOMPLETE)
    tiny.carry(20)
    tiny.deliver(0, 0, 7, MEASURE_NS + 7 * MS, MEASURE_NS + 100 * MS)
    verdict = analyze(tiny.write(tmp_path), spark, silent).verdict
    lost = next(check for check in verdict.checks if check.metric == "lost")
    assert lost.outcome is Outcome.INVALID
    assert any(RECEIVER_PEER in reason for reason in lost.reasons)
    assert verdict.outcome is Outcome.FAIL


def test_the_summary_reports_rate_batch_share_and_clock_bound(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny(group={"rate": 10.0}, bound_ns=7)
    tiny.carry(40)
    tiny.send(0, 40, START_NS)  # sent and received in the warm-up, so not part of the rate
    tiny.deliver(0, 0, 40, START_NS, START_NS + MS)
    summary = analyze(tiny.write(tmp_path), spark, silent)
    assert (summary.rate.offered, summary.rate.sent, summary.rate.sustained) == (10.0, 10.0, 10.0)
    assert (summary.rate.duration_ns, summary.rate.bytes_per_second) == (4 * SECOND_NS, 1000.0)
    assert summary.batch_share == pytest.approx(0.75)  # 41 rows sent at 1.0 and 41 received at 0.5
    assert summary.clock_bound_ns == 7


def test_a_run_without_phases_has_no_rate_to_judge(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny(phases=[])
    tiny.carry(20)
    summary = analyze(tiny.write(tmp_path), spark, silent)
    assert summary.rate.duration_ns == 0
    assert {row.phase for row in summary.latency} == {"outside"}
    assert summary.verdict.outcome is Outcome.INVALID


def test_a_directory_that_is_not_a_recording_is_refused_and_left_untouched(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(ConfigError, match="not a recording"):
        analyze(tmp_path, spark, silent)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_a_failed_analysis_leaves_no_summary(
    spark: SparkSession, analysed: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(analysed.run_dir, tmp_path, dirs_exist_ok=True)
    assert read_summary(tmp_path) == analysed.summary

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("crescendo.pipeline.job.latencies", broken)
    with pytest.raises(OSError, match="disk full"):
        analyze(tmp_path, spark, silent)
    with pytest.raises(ConfigError, match="not analysed yet"):
        read_summary(tmp_path)


def test_spark_is_silent_from_start_to_end_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run_dir, scratch = tmp_path / "run", tmp_path / "scratch"
    run_dir.mkdir()
    scratch.mkdir()
    flawed().write(run_dir)
    program = """
import sys
from dataclasses import dataclass
from pathlib import Path
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.job import analyze
from crescendo.pipeline.spark import evaluation
from crescendo.pipeline.spark.session import close_session, open_session
use_java()
spark = open_session()
analyze(Path(sys.argv[1]), spark, lambda _: None)
close_session(spark)
"""
    environment = os.environ | {"TMPDIR": str(scratch)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(run_dir)], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert read_summary(run_dir).total.lost == 4
    assert list(scratch.iterdir()) == []
