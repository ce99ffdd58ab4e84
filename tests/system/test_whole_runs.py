"""What users see: a verdict, a report, an exit code, and nothing left running."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from crescendo.cli.terminal import EXIT_CODES, print_verdict
from crescendo.model.verdict import Outcome
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.manifest import sha256_of
from crescendo.record.summary import Summary
from crescendo.report.page import write_report
from crescendo.systems.instance import start
from crescendo.systems.kinds.loopback import LOOPBACK
from whole_runs import Launcher, judged, launching, write_experiment

RATE, SENDERS, SECONDS = 500, 2, 5
"""Length of the run that all tests of a good run share; one second of it is warm-up."""


def test_the_demo_loses_nothing_and_leaves_a_report(launch: Launcher) -> None:
    session = launch("demo")
    done = session.finish()
    # On a busy machine our own delay may be large; then it says so, and blames nobody.
    was_late = "own delay could explain it" in done.stdout
    assert ("VERDICT invalid" if was_late else "VERDICT pass") in done.stdout, done.stdout + done.stderr
    assert done.returncode == (3 if was_late else 0)
    assert "fail" not in done.stdout
    for metric in ("lost", "duplicated"):
        assert f"pass    {metric} 0, wanted == 0" in done.stdout
    report = session.run_dir() / "report.html"
    assert str(report) in done.stdout
    assert "VERDICT" not in done.stderr
    assert "WARN" not in done.stderr
    assert report.stat().st_size > 100_000
    assert "Send/database" in report.read_text(), "where the time of a request goes"


# -- one good run, on a relay that requires a password and pauses for a second ---------------------------------------


PASSWORD = "zebrafish \"engine\" pa$$w0rd 'x' back\\slash {a: b} </script> @/:%"


@dataclass(frozen=True)
class GoodRun:
    run_dir: Path
    summary: Summary
    printed: str
    stalled_ns: int

    def count(self, table: str, condition: str) -> int:
        """How many rows were intended within the second of the pause."""
        (found,) = duckdb.sql(
            f"select count(*) from read_parquet('{self.run_dir}/{table}/*.parquet') "  # noqa: S608
            f"where intended_ns >= {self.stalled_ns} and intended_ns < {self.stalled_ns + 10**9} and {condition}"
        ).fetchall()[0]
        return int(found)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[GoodRun]:
    directory = tmp_path_factory.mktemp("good")
    settings = {"user": "ada", "password": PASSWORD}
    relay = start(LOOPBACK, settings, directory=directory / "relay", on_fork=die_with_parent())
    try:
        with launching(directory) as launch:
            phases = {"measure": f"{SECONDS - 1}s"}
            path = write_experiment(directory / "trial.yml", system={"url": relay.url}, phases=phases)
            session = launch.without_analysis(path)
            session.wait_for_measure()
            stalled_ns = time.monotonic_ns()
            os.kill(relay.pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(relay.pid, signal.SIGCONT)
            done = session.finish()
            summary = judged(session, spark)
            write_report(session.run_dir())
            yield GoodRun(session.run_dir(), summary, done.stdout + done.stderr, stalled_ns)
    finally:
        relay.stop()


def test_every_message_is_accounted_for(good_run: GoodRun) -> None:
    assert good_run.summary.total.sent == good_run.summary.total.delivered == RATE * SENDERS * SECONDS


def test_the_right_password_is_accepted_and_never_written(good_run: GoodRun) -> None:
    assert good_run.summary.verdict.outcome is Outcome.PASS
    assert "zebrafish" not in good_run.printed
    files = [file for file in good_run.run_dir.rglob("*") if file.is_file()]
    assert {good_run.run_dir / name for name in ("manifest.json", "summary.json", "report.html")} <= set(files)
    for file in files:
        assert b"zebrafish" not in file.read_bytes(), file  # the report too


def test_a_paused_relay_shows_in_the_p99(good_run: GoodRun) -> None:
    response = good_run.summary.latency_of("response")
    assert response is not None
    assert (response.percentiles_ns["p99"] or 0) >= 800_000_000
    assert abs(good_run.count("sent", "true") - RATE * SENDERS) <= SENDERS
    # Messages due in the first 900 ms waited at least 100 ms.
    assert good_run.count("received", "received_ns - intended_ns >= 100000000") >= 0.85 * RATE * SENDERS


# -- other runs ------------------------------------------------------------------------------------------------------


def test_a_count_is_a_count_per_connection(
    launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    path = experiment(phases={"warmup": "0s", "measure": "1500 messages"}, workload={"rate": 0}, checks={"lost": 0})
    session = launch.without_analysis(path)
    assert session.finish().returncode == 0
    summary = judged(session, spark)
    assert summary.total.sent == 2 * 1500
    assert {row.kind for row in summary.latency} == {"transfer", "settle"}  # unbounded: no response


def test_lines_of_a_file_are_sent_in_order(launch: Launcher, experiment: Callable[..., Path], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nfive!\n\n")
    session = launch.without_analysis(
        experiment(workload={"size": {"file": str(lines)}}, phases={"warmup": "0s", "measure": "30 messages"})
    )
    assert session.finish().stdout == "sealed\n"
    for table in ("sent", "received"):
        sizes = pq.read_table(session.run_dir() / table, columns=["seq", "size"]).to_pydict()
        assert sorted(sizes["seq"]) == sorted([*range(30)] * 2)
        assert {(seq % 3, size) for seq, size in zip(*sizes.values(), strict=True)} == {(0, 33), (1, 37), (2, 32)}


@pytest.fixture
def thousand_files() -> Iterator[None]:
    """As on most machines: a process may open 1,024 files, and more if it raises its limit."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


@pytest.mark.usefixtures("thousand_files")
def test_a_process_may_have_more_than_a_thousand_connections(launch: Launcher, experiment: Callable[..., Path]) -> None:
    many = 1100
    path = experiment(
        workload={"senders": many, "receivers": many, "rate": 1}, phases={"warmup": "1s", "measure": "2s"}
    )
    session = launch.without_analysis(path)
    assert session.finish().stdout == "sealed\n"
    with duckdb.connect() as connection:
        (sent,) = connection.execute(
            f"select count(*) from '{session.run_dir()}/sent/*.parquet'"  # noqa: S608
        ).fetchall()
        (received,) = connection.execute(
            f"select count(*) from '{session.run_dir()}/received/*.parquet'"  # noqa: S608
        ).fetchall()
    assert sent == received == (3 * many,)


def _ends_incomplete(session: Any, killed_s: float) -> None:
    while session.manifest()["state"] != "incomplete" or not session.manifest()["peers"]:
        assert time.monotonic() - killed_s < 15, "a lost peer is noticed, and the rest stopped and sealed"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "role",
    ["sender", pytest.param("receiver", marks=pytest.mark.soak)],  # the suite kills a receiver in each phase
)
def test_losing_a_peer_is_never_a_pass_and_is_reported(
    role: str,
    launch: Launcher,
    experiment: Callable[..., Path],
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = launch.without_analysis(experiment())
    session.wait_for_measure()
    killed_s = time.monotonic()
    session.peer(role).kill()
    _ends_incomplete(session, killed_s)
    assert session.finish().stdout == "incomplete\n"
    summary = judged(session, spark)
    print_verdict(summary)
    printed = capsys.readouterr().out
    assert "VERDICT invalid" in printed
    assert f"{role}-0" in printed
    assert EXIT_CODES[summary.verdict.outcome] == 3
    assert summary.total.sent + summary.total.unrecorded > 0


def test_ctrl_c_in_the_analysis_is_reported_and_keeps_the_recording(
    launch: Launcher, experiment: Callable[..., Path]
) -> None:
    session = launch("run", str(experiment(phases={"warmup": "0s", "measure": "1s"})))
    for line in session.process.stderr or ():
        if "counting" in line:
            break
    os.killpg(session.process.pid, signal.SIGINT)  # as a terminal does: Spark gets it too
    done = session.finish()
    assert done.returncode == 3, done.stderr
    assert "VERDICT invalid · interrupted" in done.stdout
    assert "Traceback" not in done.stderr
    assert session.manifest()["state"] == "sealed"


def test_ctrl_c_stops_everything_and_keeps_the_recording(
    launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    on_a_broker = {"system": {"kind": "mosquitto"}, "workload": {"protocol": "mqtt", "address": "topic://news"}}
    session = launch("run", str(experiment(**on_a_broker, phases={"measure": "60s"})))
    session.wait_for_measure()
    broker = session.manifest()["system"]["pid"]
    pressed_s = time.monotonic()
    session.process.send_signal(signal.SIGINT)
    done = session.finish(timeout_s=30)
    assert time.monotonic() - pressed_s < 15  # five seconds on an idle machine
    assert "VERDICT invalid · interrupted" in done.stdout
    assert done.returncode == 3
    assert not session.family()
    assert not psutil.pid_exists(broker)
    assert not (session.run_dir() / "system").exists()
    manifest = session.manifest()
    assert manifest["state"] == "interrupted"
    assert manifest["files"]
    for part in manifest["files"]:
        path = session.run_dir() / part["path"]
        assert sha256_of(path) == part["sha256"]
        assert pq.read_metadata(path).num_rows == part["rows"]
    assert judged(session, spark).verdict.outcome is Outcome.INVALID
