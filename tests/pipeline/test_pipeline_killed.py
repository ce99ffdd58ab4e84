"""An analysis killed at any moment and run again gives the tables of an uninterrupted one."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.pipeline.lake.build import build_lake
from crescendo.processes.die_with_parent import die_with_parent
from many_runs import plain, write_run
from table_hashes import hashes
from tiny_recordings import silent

pytestmark = pytest.mark.timeout(900)

CRESCENDO = str(Path(sys.executable).with_name("crescendo"))
EXIT_TIMEOUT_S = 120.0


def kill_at(text: str, folder: Path, scratch: Path) -> None:
    """Start the command on all runs of a folder, and send SIGKILL when its progress contains this text."""
    process = subprocess.Popen(
        die_with_parent().wrap([CRESCENDO, "analyze", str(folder)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if text in line:
            break
    else:
        pytest.fail(f"{text!r} never appeared: {lines}")
    children = psutil.Process(process.pid).children(recursive=True)  # none before Spark starts
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    # Its Spark notices and exits too; no process may remain.
    _, alive = psutil.wait_procs(children, timeout=EXIT_TIMEOUT_S)
    assert alive == []


FEW = ["1 of 2, {0}: computing behaviour"]
MANY = [
    "starting Spark", "1 of 2, {0}: checking", "1 of 2, {0}: counting", "1 of 2, {0}: computing behaviour",
    "1 of 2, {0}: judging", "1 of 2, {0}: into the lake", "2 of 2, {1}: checking", "2 of 2, {1}: counting",
    "2 of 2, {1}: computing behaviour",
]  # fmt: skip


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=pytest.mark.soak)], ids=["few", "many"])
def test_an_analysis_killed_repeatedly_gives_the_same_tables(
    spark: SparkSession, tmp_path: Path, moments: list[str]
) -> None:
    folder, reference, scratch = tmp_path / "runs", tmp_path / "reference", tmp_path / "scratch"
    scratch.mkdir()
    runs = [write_run(folder, f"run-{seed}", plain(seed), seed) for seed in (1, 2)]
    shutil.copytree(folder, reference)
    expected = []
    for run in runs:
        analyze(reference / run.name, spark, silent)
        expected.append(hashes(reference / run.name / "tables"))
    for moment in moments:
        kill_at(moment.format(*runs), folder, scratch)
    results = build_lake(runs, folder / "lake", spark, silent)
    # A run that was complete at the last kill is not computed again.
    assert [(one.computed, one.fault) for one in results] == [(moments == FEW, ""), (True, "")]
    assert [hashes(run / "tables") for run in runs] == expected
    assert len(list(folder.glob("lake/runs/*/run=*/*.parquet"))) == 2
    hidden = [path for path in folder.rglob(".*") if path.name != ".lock"]
    assert hidden == []
