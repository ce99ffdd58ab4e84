"""In an object store there is no rename: the tables and the lake there are those of a directory all the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.lake.build import build_lake
from crescendo.processes.die_with_parent import die_with_parent
from many_runs import eventful, plain, write_run
from s3_server import BUCKET, Bucket, client_settings, s3_server
from table_hashes import hashes
from tiny_recordings import silent

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]  # fetches 60 MB of Java

CRESCENDO = str(Path(sys.executable).with_name("crescendo"))
RUNS = [f"s3a://{BUCKET}/runs/run-{number}" for number in (1, 2)]
ENOUGH_S = 600.0


def analysed(environment: dict[str, str], *, until: str = "") -> str:
    """What the command says of both runs and their lake; killed without warning when it says certain words."""
    process = subprocess.Popen(
        [CRESCENDO, "analyze", *RUNS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - one prctl, from the main thread
    )
    if not until:
        return "".join(process.communicate(timeout=ENOUGH_S))
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if until in line:
            break
    else:
        pytest.fail(f"it never said {until!r}: {said}")
    family = psutil.Process(process.pid).children(recursive=True)
    for member in [*family, process]:
        member.kill()
    process.communicate()
    psutil.wait_procs(family, timeout=60)
    return ""


def lake_hashes(lake: Path, run: str, view: Path) -> dict[str, str]:
    for folder in lake.glob(f"*/experiment=tiny/run={run}"):
        if folder.parts[-3] != "runs":
            (view / run).mkdir(parents=True, exist_ok=True)
            (view / run / folder.parts[-3]).symlink_to(folder)
    return hashes(view / run)


def test_killed_and_run_again_tables_and_lake_in_an_object_store_are_those_of_a_directory(
    spark: SparkSession, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    runs = [write_run(here, "run-1", eventful(), 1, inspected=True), write_run(here, "run-2", plain(2), 2)]
    with s3_server(tmp_path) as endpoint:
        bucket = Bucket(endpoint)
        bucket.upload(here, "runs")
        build_lake(runs, here / "lake", spark, silent)
        settings = {"SPARK_CONF_DIR": str(client_settings(tmp_path, endpoint)), "TMPDIR": str(tmp_path)}
        environment = os.environ | settings
        for moment in ("looking at how", "into the lake"):
            analysed(environment, until=f"1 of 2, {RUNS[0]}: {moment}")
            # Whoever asks for the row of a run, which is written last, sees no run of which half is there.
            assert [key for key in bucket.names() if re.search("/lake/runs/.*parquet$", key)] == []
        assert "lake: 1 computed, 1 unchanged, 0 set aside" in analysed(environment)
        assert "lake: 0 computed, 2 unchanged, 0 set aside" in analysed(environment)
        there = bucket.download(tmp_path / "there") / "runs"
        assert [key for key in bucket.names() if ".tmp" in key] == []
    for run in runs:
        assert hashes(there / run.name / "tables") == hashes(run / "tables")
        assert lake_hashes(there / "lake", run.name, tmp_path / "view") == hashes(run / "tables")
    assert len(list(there.glob("lake/runs/*/run=*/*.parquet"))) == len(runs)
