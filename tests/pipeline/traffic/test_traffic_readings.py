"""Readings of inspectors, as tables: DuckDB recomputes every number from the raw parts."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.pipeline.traffic.readings import MAX_METRICS, metric_columns
from crescendo.record.manifest import PeerRecord, read_manifest, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import EVENTS, READINGS
from crescendo.record.writer import Recorder
from tiny_recordings import END_NS, MEASURE_NS, SECOND_NS, START_NS, Tiny, silent

INSPECTOR = "inspector-artemis"
QUARTER_NS = SECOND_NS // 4

Reading = tuple[int, str, str, float]
Event = tuple[int, str, dict[str, Any]]


def inspected(run_dir: Path, readings: list[Reading], events: Sequence[Event] = ()) -> Path:
    """A run without messages, in which only an inspector records."""
    manifest = read_manifest(Tiny().write(run_dir))
    recorder = Recorder(run_dir, INSPECTOR)
    for t_ns, entity, metric, value in readings:
        recorder.append(READINGS, 1, t_ns, INSPECTOR, entity, metric, value)
    for t_ns, kind, detail in events:
        recorder.append(EVENTS, 1, t_ns, INSPECTOR, kind, json.dumps(detail))
    recorder.close()
    peers = [*manifest.peers, PeerRecord(INSPECTOR, "inspector", "here", 1, "finished")]
    write_manifest(run_dir, replace(manifest, peers=peers, files=list(journalled_parts(run_dir))))
    return run_dir


def leaking(run_dir: Path) -> Path:
    """Before, within and after the measure phase: a heap that grows, a queue that oscillates, a constant limit."""
    readings: list[Reading] = []
    for poll in range(-2, 24):
        t_ns = START_NS + poll * QUARTER_NS
        readings += [
            (t_ns, "memory/heap", "used", 1e9 + 2.5e6 * poll + 1e4 * math.sin(poll)),
            (t_ns, "memory/heap", "max", 4e9),
            (t_ns, "queue/perf", "MessageCount", float(poll * poll % 7)),
        ]
    readings.append((START_NS, "queue/early", "MessageCount", 5.0))
    return inspected(run_dir, readings)


def rows(run_dir: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(run_dir / "tables" / table).to_pylist()


@pytest.fixture(scope="module")
def leak(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = leaking(tmp_path_factory.mktemp("leak"))
    analyze(run_dir, spark, silent)
    return run_dir


def test_the_wide_table_holds_every_reading_and_nothing_else(leak: Path) -> None:
    long = duckdb.execute(
        f"SELECT source, entity, t_ns, metric, value FROM '{leak}/readings/*.parquet'"  # noqa: S608
    ).fetchall()
    wide = rows(leak, "readings")
    found = [
        (row["source"], row["entity"], row["t_ns"], metric, row[metric])
        for row in wide
        for metric in row.keys() - {"run", "source", "entity", "t_ns"}
        if row[metric] is not None
    ]
    assert sorted(found) == sorted(long)
    assert {row["run"] for row in wide} == {"tiny"}
    assert len(wide) == len({(row["source"], row["entity"], row["t_ns"]) for row in wide})


def test_the_summary_equals_what_duckdb_computes_over_the_measure_phase(leak: Path) -> None:
    query = f"""
        SELECT source, entity, metric, count(*), arg_min(value, t_ns), arg_max(value, t_ns), min(value), avg(value),
               max(value), regr_slope(value, (t_ns - {START_NS}) / 1e9), regr_r2(value, (t_ns - {START_NS}) / 1e9)
        FROM '{leak}/readings/*.parquet' WHERE t_ns >= {MEASURE_NS} AND t_ns < {END_NS} GROUP BY ALL
    """  # noqa: S608
    expected = {row[:3]: row[3:] for row in duckdb.execute(query).fetchall()}
    names = ("samples", "first", "last", "min", "mean", "peak", "slope", "r2")
    found = {
        (row["source"], row["entity"], row["metric"]): row
        for row in rows(leak, "reading_summary")
        if row["entity"] != "queue/early"
    }
    assert found.keys() == expected.keys()
    for key, numbers in expected.items():
        if key[2] == "max":
            numbers = (*numbers[:-1], None)  # noqa: PLW2901 - DuckDB gives r2 = 1 for a constant
        row = [found[key][name] for name in names]
        assert row == [pytest.approx(number, rel=1e-9, abs=1e-9) if number is not None else None for number in numbers]


def test_a_leak_is_distinguished_from_an_oscillation(leak: Path) -> None:
    trend = {(row["entity"], row["metric"]): (row["slope"], row["r2"]) for row in rows(leak, "reading_summary")}
    slope, r2 = trend["memory/heap", "used"]
    assert slope == pytest.approx(1e7, rel=0.01)  # 2.5 MB every quarter of a second
    assert r2 > 0.999
    assert trend["queue/perf", "MessageCount"][1] < 0.5
    assert trend["memory/heap", "max"] == (0.0, None)


def test_a_metric_read_only_before_the_measure_phase_has_no_statistics(leak: Path) -> None:
    early = next(row for row in rows(leak, "reading_summary") if row["entity"] == "queue/early")
    assert early["samples"] == 0
    assert {early[name] for name in ("first", "last", "min", "mean", "peak", "slope", "r2")} == {None}


def test_two_samples_have_no_trend_and_non_finite_values_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    values = [1.0, float("nan"), 9.0, float("inf")]
    run_dir = inspected(tmp_path, [(MEASURE_NS + n, "e", "m", value) for n, value in enumerate(values)])
    analyze(run_dir, spark, silent)
    (row,) = rows(run_dir, "reading_summary")
    assert (row["samples"], row["first"], row["last"], row["peak"]) == (2, 1.0, 9.0, 9.0)
    assert (row["slope"], row["r2"]) == (None, None)


def test_metrics_that_differ_only_in_case_or_clash_with_a_column_keep_separate_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ["messages", "Messages", "run", "t_ns", "load/1 min", "a.b", "é{}()=,;", "`x`"]
    run_dir = inspected(tmp_path, [(MEASURE_NS, "e", name, float(n)) for n, name in enumerate(names)])
    analyze(run_dir, spark, silent)
    (row,) = rows(run_dir, "readings")
    columns = metric_columns(str(file) for file in (run_dir / "readings").iterdir())
    assert {name: row[columns[name]] for name in names} == {name: float(n) for n, name in enumerate(names)}
    assert (columns["run"], columns["messages"], columns["Messages"]) == ("run_2", "messages_2", "Messages")


def test_the_metrics_read_most_often_keep_their_columns_and_all_are_summarised(
    spark: SparkSession, tmp_path: Path
) -> None:
    readings: list[Reading] = [(MEASURE_NS, "e", f"rare-{n:03}", 1.0) for n in range(MAX_METRICS)]
    readings += [(MEASURE_NS + poll, "e", "often", 2.0) for poll in range(3)]
    analyze(inspected(tmp_path, readings), spark, silent)
    columns = pq.read_table(tmp_path / "tables" / "readings").column_names
    assert len(columns) == 4 + MAX_METRICS
    assert "often" in columns
    assert f"rare-{MAX_METRICS - 1:03}" not in columns
    assert len(rows(tmp_path, "reading_summary")) == MAX_METRICS + 1


def test_a_gap_lasts_from_a_failed_poll_to_the_next_successful_one(spark: SparkSession, tmp_path: Path) -> None:
    events: list[Event] = [
        (MEASURE_NS + 7, "look-failed", {"reason": "connection refused"}),
        (MEASURE_NS + 8, "texts", {"broker": {"version": "2"}}),
        (MEASURE_NS + 9, "look-recovered", {"after_s": 0.1, "reason": "timed out"}),
        (MEASURE_NS + 11, "look-failed", {"reason": "gone"}),
    ]
    run_dir = inspected(tmp_path, [], events)
    analyze(run_dir, spark, silent)
    first = {"source": INSPECTOR, "start_ns": MEASURE_NS + 7, "end_ns": MEASURE_NS + 9, "reason": "connection refused"}
    assert rows(run_dir, "reading_gaps") == [
        first,
        first | {"start_ns": MEASURE_NS + 11, "end_ns": None, "reason": "gone"},
    ]
    assert not (run_dir / "tables" / "readings").exists()
