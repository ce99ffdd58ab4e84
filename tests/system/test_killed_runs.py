"""A recording that was cut off at any point is readable and marked as incomplete."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from crescendo.cli.analyze import analyze
from crescendo.record.reader import open_recording


def test_killing_the_conductor_leaves_no_process_and_a_readable_recording(
    launch: Callable[..., Any],
    experiment: Callable[..., Path],
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = launch("run", str(experiment(phases={"measure": "60s"})))
    session.wait_for_measure()
    deadline = time.monotonic() + 30
    while not open_recording(session.run_dir()).rows("received"):  # the first part is closed after ten seconds
        assert time.monotonic() < deadline
        time.sleep(0.1)
    session.process.kill()
    session.process.communicate()
    deadline = time.monotonic() + 5
    while session.family() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [process.cmdline() for process in session.family()] == []
    manifest = session.manifest()
    assert manifest["state"] == "incomplete"
    recording = open_recording(session.run_dir())
    assert recording.rows("received") > 0
    assert not recording.damaged
    for part in recording.parts:
        assert pq.read_metadata(session.run_dir() / part.path).num_rows == part.rows
    capsys.readouterr()
    assert spark.range(1).count() == 1  # the verb uses the session that is running
    assert analyze([str(session.run_dir())], as_json=True) == 3
    (summary,) = json.loads(capsys.readouterr().out)
    assert summary["verdict"]["outcome"] == "invalid"
