"""Do the examples work as they are written?"""

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from pyspark.sql import SparkSession

import crescendo
from api_runs import EXAMPLES, SENT, ObservedRun, load_example
from crescendo.systems.instance import RunningInstance


def test_every_example_is_tested_here() -> None:
    tested = {"run_and_assert.py", "read_recording.py", "add_a_check.py", "compare_two_brokers.py"}
    tested |= {"explore_a_run.ipynb", "run_a_handler.py"}
    tested |= {"drive_the_web.py", "grafana-dashboard.json"}  # in tests/web, where there is a server
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == tested


def test_run_and_assert(observed_run: ObservedRun) -> None:
    """It made the run that all tests here share, and its assertions held."""
    assert observed_run.result.passed


def test_read_recording(observed_run: ObservedRun, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("read_recording").main(str(observed_run.result.run_dir))
    lines = capsys.readouterr().out.splitlines()
    assert ": pass, " in lines[0]
    assert lines[1].startswith("response p50 ")
    assert re.fullmatch(r"[\d,]+ of 1,?250 messages took longer than 10 ms", lines[2])
    assert lines[3] == "0 messages were larger than 1,000 bytes"


def test_add_a_check(observed_run: ObservedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_example("add_a_check").main(str(observed_run.result.run_dir)) == 0
    printed = capsys.readouterr().out
    assert "pass    silent_seconds 0.0, wanted == 0" in printed
    assert "VERDICT pass" in printed


def test_compare_two_brokers(
    spark: SparkSession, mlmq: RunningInstance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load_example("compare_two_brokers")
    example.BROKERS["mlmq"]["system"] = {"url": mlmq.endpoints["mlmq"]}  # starting one more takes seconds
    comparison = example.main(str(tmp_path))
    assert isinstance(comparison, crescendo.Comparison)
    assert {"rate", "lost"} <= {metric.metric for metric in comparison.metrics}
    assert any("loopback" in note and "mlmq" in note for note in comparison.notes), comparison.notes
    assert f"mlmq against loopback: {comparison.outcome}" in capsys.readouterr().out


def test_run_a_handler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("run_a_handler").main(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "sealed"
    assert any(line.startswith("handler event") and "cache dropped" in line for line in printed)
    assert any("dropped pages" in line for line in printed)


def test_explore_a_run(observed_run: ObservedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every code cell in order, as a notebook runs them."""
    monkeypatch.setenv("CRESCENDO_RUN", str(observed_run.result.run_dir))
    cells = json.loads((EXAMPLES / "explore_a_run.ipynb").read_text())["cells"]
    assert all(cell.get("outputs", []) == [] for cell in cells), "clear the outputs before you commit"
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)  # noqa: S102
    assert isinstance(names["rate"], go.Figure)
    assert sum(names["rate"].data[0].y) == SENT
    assert len(names["response"].data[0].x) == len(names["histogram"].data[0].x) == SENT
