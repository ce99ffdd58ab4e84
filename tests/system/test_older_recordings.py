"""Recordings, tables and summaries of version 0.1 are still analysed, compared and reported.

tests/samples/version-0.1 holds three runs as that version left them, tables included: two of the same experiment
through the relay, and one through MLMQ with request spans. They are never written again.
"""

import shutil
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from crescendo.pipeline.compare.compare import compare
from crescendo.pipeline.compare.runs import run_group
from crescendo.pipeline.job import analyze
from crescendo.record.reader import open_recording
from crescendo.record.summary import Summary, read_summary
from crescendo.report.page import render_report
from table_hashes import hashes

SAMPLES = Path(__file__).parents[1] / "samples" / "version-0.1"
RUNS = ("baseline", "run", "mlmq")
INTERVALS = ("_low", "_high")
SLICES = ("sender_group", "destination", "receiver_group")
NEW_TABLES = {"jitter_series"}
NEW_RULE = "destination was empty"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "older"))


@pytest.mark.parametrize("name", RUNS)
def test_every_part_is_intact(older: Path, name: str) -> None:
    recording = open_recording(older / name)
    assert recording.damaged == {}
    assert recording.rows("sent") == recording.rows("received") > 0


@pytest.mark.parametrize("name", RUNS)
def test_a_new_analysis_computes_the_same_tables_and_summary(older: Path, name: str, spark: SparkSession) -> None:
    # Intervals were computed as if latencies did not depend on each other, and there were no slices; all other columns
    # are the same.
    tables, summary = hashes(older / name / "tables", without=(*INTERVALS, *SLICES)), read_summary(older / name)
    again = analyze(older / name, spark, lambda _: None, full=True)
    computed = hashes(older / name / "tables", without=(*INTERVALS, *SLICES))
    assert {table: digest for table, digest in computed.items() if table not in NEW_TABLES} == tables
    assert {each.is_whole for each in again.slices} == {True}
    assert _without_sentences(again) == _without_sentences(summary)
    assert again.verdict.outcome is Outcome.PASS


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_rendered_from_older_tables(older: Path, name: str) -> None:
    page = render_report(older / name)
    assert "quick-mlmq" in page if name == "mlmq" else "quick-amqp10" in page
    assert "200" in page


def test_older_runs_are_compared(older: Path) -> None:
    no_lake = older / "no-lake"
    found = compare(run_group(str(older / "baseline"), no_lake), run_group(str(older / "run"), no_lake), 0.05)
    changes = {metric.metric: metric.outcome.value for metric in found.metrics}
    assert changes["rate"] == changes["response_p50"] == "cannot say"  # single runs of 2 s have no interval
    assert changes["lost"] == "no difference"


def _without_sentences(summary: Summary) -> object:
    """Numbers and outcomes; sentences may be reworded."""
    document = msgspec.to_builtins(summary)
    for part in [*document["verdict"]["checks"], *document["validity"]]:
        part.pop("reasons", None)
        part.pop("detail", None)
    document["validity"] = [part for part in document["validity"] if part["name"] != NEW_RULE]
    document["verdict"].pop("reasons", None)
    document.pop("slices")
    for row in document["latency"]:
        row.pop("no_interval", None)
    return document
