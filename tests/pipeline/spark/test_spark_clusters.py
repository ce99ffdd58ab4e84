"""The same recording gives the same tables on every cluster, to the last bit."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.summary import read_summary
from many_runs import eventful, plain, write_run
from table_hashes import hashes
from tiny_recordings import Tiny, silent

pytestmark = pytest.mark.timeout(900)  # three Java processes that start together are slow on a busy machine

SEPARATE_ANALYSIS = str(Path(__file__).with_name("separate_analysis.py"))
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
TIMEOUT_S = 300.0
GIGABYTE = 2**30


def recorded(folder: Path, tiny: Tiny) -> Path:
    """Write the recording into this folder."""
    return write_run(folder, "run", tiny, inspected=True)


def expected(tiny: Tiny, spark: SparkSession, folder: Path) -> dict[str, str]:
    """The hashes of all tables, computed in one process."""
    run = recorded(folder / "one-process", tiny)
    analyze(run, spark, silent, full=True)
    return hashes(run / "tables")


def analyse_separately(master: str, run: str, scratch: Path, **environment: str) -> dict[str, int]:
    """Analyse in another process; returns the peak memory of its driver."""
    scratch.mkdir()
    done = subprocess.run(
        die_with_parent().wrap([sys.executable, SEPARATE_ANALYSIS, master, run]),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S * 2,
        env=os.environ | {"TMPDIR": str(scratch)} | environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(scratch.iterdir()) == []  # driver, workers and executors leave no files
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


@pytest.mark.soak  # executors that start cold cost more than all other tests of several runs together
def test_a_cluster_on_this_machine_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    run = recorded(tmp_path / "cluster", eventful())
    analyse_separately("local-cluster[2,1,1024]", str(run), tmp_path / "scratch")
    assert hashes(run / "tables") == expected(eventful(), spark, tmp_path)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core each, from the installed PySpark, on the loopback address."""
    spark_home = str(Path(pyspark.__file__).parent)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # they do little but start
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": spark_home,
        "SPARK_DAEMON_JAVA_OPTS": quick,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as out:
            command = die_with_parent().wrap([SPARK_CLASS, *arguments])
            started.append(
                subprocess.Popen(
                    command,
                    stdout=out,
                    stderr=out,
                    env=environment,
                )
            )
        return log

    try:
        log = start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        url = logged(log, "Starting Spark master at ").split("Starting Spark master at ")[1].strip()
        for number in range(2):
            worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0")
            start(f"worker-{number}", *worker, "-c", "1", "-m", "1g", "-d", str(tmp_path / f"worker-{number}"), url)
        for number in range(2):
            logged(tmp_path / f"worker-{number}.log", "Successfully registered with master")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def logged(log: Path, text: str) -> str:
    """Wait for a log line with this text."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for line in log.read_text(errors="replace").splitlines():
            if text in line:
                return line
        time.sleep(0.1)
    pytest.fail(f"{log.name} does not contain {text!r}:\n{log.read_text(errors='replace')[-2000:]}")


@pytest.mark.soak  # five JVMs, a minute
@pytest.mark.parametrize("tiny", [plain(), eventful()], ids=["plain", "eventful"])
def test_a_standalone_cluster_gives_the_same_tables_at_a_url_and_its_driver_stays_small(
    spark: SparkSession, standalone: str, tmp_path: Path, tiny: Tiny
) -> None:
    run = recorded(tmp_path / "a path with spaces", tiny)
    # Settings for a cluster come from the file where Spark expects them.
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.executor.memory 512m\nspark.executor.cores 1\n")
    peaks = analyse_separately(standalone, f"file:{run}", tmp_path / "scratch", SPARK_CONF_DIR=str(conf))
    assert hashes(run / "tables") == expected(tiny, spark, tmp_path)
    assert read_summary(run).total.sent == len(tiny.sent)
    assert sum(peaks.values()) < GIGABYTE
    executors = list(tmp_path.glob("worker-*/app-*/*/stderr"))
    assert len(executors) == 2  # one per worker, each in its own process
    assert all("-Xmx512M" in executor.read_text() for executor in executors)
