"""What a person sees: a verdict, a report, an exit code, and nothing left running."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from crescendo.record.manifest import sha256_of


def test_the_demo_passes_and_leaves_a_report(launch: Callable[..., Any]) -> None:
    session = launch("demo")
    done = session.finish()
    assert "VERDICT pass" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    report = session.run_dir() / "report.html"
    assert str(report) in done.stdout
    assert "VERDICT" not in done.stderr
    assert "WARN" not in done.stderr
    assert report.stat().st_size > 100_000


def test_json_is_all_that_reaches_stdout(launch: Callable[..., Any], experiment: Callable[..., Path]) -> None:
    done = launch("run", str(experiment(phases={"measure": "2s"})), "--json").finish()
    summary = json.loads(done.stdout)
    assert summary["ledger"][0]["sent"] == 2 * 500 * 3
    assert summary["ledger"][0]["delivered"] == 2 * 500 * 3


def test_a_count_is_a_count_per_connection(launch: Callable[..., Any], experiment: Callable[..., Path]) -> None:
    path = experiment(phases={"warmup": "0s", "measure": 1500}, workload={"rate": 0}, checks={"lost": 0})
    session = launch("run", str(path), "--json")
    summary = json.loads(session.finish().stdout)
    assert summary["ledger"][0]["sent"] == 2 * 1500
    assert {row["kind"] for row in summary["latency"]} == {"transfer", "settle"}  # unbounded: no response


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_losing_a_peer_is_never_a_pass(launch: Callable[..., Any], experiment: Callable[..., Path], role: str) -> None:
    session = launch("run", str(experiment()))
    session.wait_for_measure()
    killed = time.monotonic()
    session.peer(role).kill()
    while session.manifest()["state"] != "incomplete" or not session.manifest()["peers"]:
        assert time.monotonic() - killed < 5, "a lost peer is noticed, and the rest stopped and sealed, within seconds"
        time.sleep(0.05)
    said = session.read_until("VERDICT")
    seconds = time.monotonic() - killed
    done = session.finish()
    assert "VERDICT invalid" in said, said + done.stderr
    assert f"{role}-0" in said
    assert done.returncode == 3
    # About 10 s on two idle cores, nearly all of it a cold Spark; the bound is for a hang, not for a busy machine.
    assert seconds < 40, f"the verdict took {seconds:.1f} s"
    assert session.manifest()["state"] == "incomplete"
    summary = json.loads((session.run_dir() / "summary.json").read_text())
    survivor = "sent" if role == "receiver" else "delivered"
    assert summary["ledger"][0][survivor] > 0 or summary["ledger"][0]["unrecorded"] > 0


def test_ctrl_c_stops_everything_and_keeps_what_was_recorded(
    launch: Callable[..., Any], experiment: Callable[..., Path]
) -> None:
    session = launch("run", str(experiment()))
    session.wait_for_measure()
    pressed = time.monotonic()
    session.process.send_signal(signal.SIGINT)
    done = session.finish(timeout_s=30)
    assert time.monotonic() - pressed < 5
    assert "VERDICT invalid · interrupted" in done.stdout
    assert done.returncode == 3
    assert not session.family()
    manifest = session.manifest()
    assert manifest["state"] == "interrupted"
    for part in manifest["files"]:
        path = session.run_dir() / part["path"]
        assert sha256_of(path) == part["sha256"]
        assert pq.read_metadata(path).num_rows == part["rows"]
    again = launch("analyze", str(session.run_dir())).finish()
    assert "VERDICT invalid" in again.stdout
    assert again.returncode == 3


def test_a_paused_relay_shows_in_the_p99(launch: Callable[..., Any], experiment: Callable[..., Path]) -> None:
    rate, senders = 500, 2
    session = launch("run", str(experiment()), "--json")
    session.wait_for_measure()
    relay = session.manifest()["system"]["pid"]
    stalled_ns = time.monotonic_ns()
    os.kill(relay, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(relay, signal.SIGCONT)
    summary = json.loads(session.finish().stdout)
    response = next(r for r in summary["latency"] if r["kind"] == "response" and r["phase"] == "measure")
    assert response["percentiles_ns"]["p99"] >= 800_000_000
    (inside,) = duckdb.sql(
        f"select count(*) from read_parquet('{session.run_dir()}/sent/*.parquet') "  # noqa: S608
        f"where intended_ns >= {stalled_ns} and intended_ns < {stalled_ns + 10**9}"
    ).fetchall()[0]
    assert abs(inside - rate * senders) <= senders
    (late,) = duckdb.sql(
        f"select count(*) from read_parquet('{session.run_dir()}/received/*.parquet') "  # noqa: S608
        f"where intended_ns >= {stalled_ns} and intended_ns < {stalled_ns + 10**9} "
        f"and received_ns - intended_ns >= 100000000"
    ).fetchall()[0]
    assert late >= 0.85 * rate * senders  # whoever was due in the first 900 ms waited at least 100 ms
