"""An object store has no rename: tables and lake there still equal those in a directory."""

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
TIMEOUT_S = 600.0


def analyse(environment: dict[str, str], *, until: str = "") -> str:
    """Analyse both runs into a lake and return the output; with `until`, kill the command when that text appears."""
    process = subprocess.Popen(
        die_with_parent().wrap([CRESCENDO, "analyze", *RUNS]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if not until:
        return "".join(process.communicate(timeout=TIMEOUT_S))
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if until in line:
            break
    else:
        pytest.fail(f"{until!r} never appeared: {lines}")
    children = psutil.Process(process.pid).children(recursive=True)
    for each in [*children, process]:
        each.kill()
    process.communicate()
    psutil.wait_procs(children, timeout=60)
    return ""


def lake_hashes(lake: Path, run: str, view: Path) -> dict[str, str]:
    for folder in lake.glob(f"*/experiment=tiny/run={run}"):
        if folder.parts[-3] != "runs":
            (view / run).mkdir(parents=True, exist_ok=True)
            (view / run / folder.parts[-3]).symlink_to(folder)
    return hashes(view / run)


def test_after_kills_tables_and_lake_in_an_object_store_equal_those_in_a_directory(
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
        for moment in ("computing behaviour", "into the lake"):
            analyse(environment, until=f"1 of 2, {RUNS[0]}: {moment}")
            # The row of a run is written last, so a reader that starts from it never sees half a run.
            assert [key for key in bucket.names() if re.search("/lake/runs/.*parquet$", key)] == []
        assert "lake: 1 computed, 1 unchanged, 0 set aside" in analyse(environment)
        assert "lake: 0 computed, 2 unchanged, 0 set aside" in analyse(environment)
        there = bucket.download(tmp_path / "there") / "runs"
        assert [key for key in bucket.names() if ".tmp" in key] == []
    for run in runs:
        assert hashes(there / run.name / "tables") == hashes(run / "tables")
        assert lake_hashes(there / "lake", run.name, tmp_path / "view") == hashes(run / "tables")
    assert len(list(there.glob("lake/runs/*/run=*/*.parquet"))) == len(runs)
