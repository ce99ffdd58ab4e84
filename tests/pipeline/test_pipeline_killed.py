"""Killed at any moment and run again, an analysis gives the tables that it would have given at once."""

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
GONE_S = 120.0


def killed_at(words: str, folder: Path, scratch: Path) -> None:
    """Start the command on all runs of a folder, and kill it without warning when it says these words."""
    process = subprocess.Popen(
        [CRESCENDO, "analyze", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - one prctl, from the main thread
    )
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if words in line:
            break
    else:
        pytest.fail(f"it never said {words!r}: {said}")
    family = psutil.Process(process.pid).children(recursive=True)  # before Spark starts there is nobody
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    # Its Spark notices by itself and goes too; nothing may stay behind.
    _, alive = psutil.wait_procs(family, timeout=GONE_S)
    assert alive == []


FEW = ["1 of 2, {0}: looking at how"]
MANY = [
    "starting Spark", "1 of 2, {0}: checking", "1 of 2, {0}: counting", "1 of 2, {0}: looking at how",
    "1 of 2, {0}: judging", "1 of 2, {0}: into the lake", "2 of 2, {1}: checking", "2 of 2, {1}: counting",
    "2 of 2, {1}: looking at how",
]  # fmt: skip


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=pytest.mark.soak)], ids=["few", "many"])
def test_killed_again_and_again_it_gives_the_same_tables(
    spark: SparkSession, tmp_path: Path, moments: list[str]
) -> None:
    folder, apart, scratch = tmp_path / "runs", tmp_path / "apart", tmp_path / "scratch"
    scratch.mkdir()
    runs = [write_run(folder, f"run-{seed}", plain(seed), seed) for seed in (1, 2)]
    shutil.copytree(folder, apart)
    expected = []
    for run in runs:
        analyze(apart / run.name, spark, silent)
        expected.append(hashes(apart / run.name / "tables"))
    for moment in moments:
        killed_at(moment.format(*runs), folder, scratch)
    results = build_lake(runs, folder / "lake", spark, silent)
    # A run that was whole when the plug was pulled for the last time is not computed again.
    assert [(one.computed, one.fault) for one in results] == [(moments == FEW, ""), (True, "")]
    assert [hashes(run / "tables") for run in runs] == expected
    assert len(list(folder.glob("lake/runs/*/run=*/*.parquet"))) == 2
    hidden = [path for path in folder.rglob(".*") if path.name != ".lock"]
    assert hidden == []
