"""Does a run start, load, inspect and stop every system that speaks AMQP 1.0, and what if the system misbehaves?"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import psutil
import pytest

AMQP10 = ["rabbitmq", "activemq", "artemis", "qpid-broker-j"]
if shutil.which("qdrouterd"):
    AMQP10.append("qpid-dispatch")
SHORT = {"warmup": "1s", "measure": "5s", "drain": "10s"}


def ask(run_dir: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    """DuckDB on the raw parts, which knows nothing of ours."""
    return duckdb.sql(query.format(f"read_parquet('{run_dir / table}/*.parquet')")).fetchall()


@pytest.mark.parametrize("kind", AMQP10)
def test_a_run_starts_the_system_inspects_it_and_leaves_nothing(
    kind: str, launch: Callable[..., Any], experiment: Callable[..., Path]
) -> None:
    path = experiment(
        system={"kind": kind},
        workload={"rate": 200},
        phases=SHORT,
        inspect=[{"kind": kind, "every": "1s"}, {"kind": "process", "every": "500ms"}],
    )
    session = launch("run", str(path))
    ended = session.finish(150)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "VERDICT pass" in ended.stdout
    manifest = session.manifest()
    system = manifest["system"]
    assert system["kind"] == kind
    assert system["version"]
    assert not psutil.pid_exists(system["pid"])
    assert not (session.run_dir() / "system").exists()
    assert {peer["ended"] for peer in manifest["peers"]} == {"finished"}
    looks = "SELECT source, count(DISTINCT t_ns) FROM {} GROUP BY source ORDER BY source"
    counts = dict(ask(session.run_dir(), "readings", looks))
    assert set(counts) == {f"inspector-{kind}", "inspector-process"}
    assert counts[f"inspector-{kind}"] >= 4
    assert counts["inspector-process"] >= 8


def test_a_system_that_hangs_for_a_while_is_a_gap_and_a_slow_response_and_not_an_invalid_run(
    launch: Callable[..., Any], experiment: Callable[..., Path]
) -> None:
    path = experiment(
        system={"kind": "rabbitmq"},
        workload={"rate": 200},
        phases={"warmup": "1s", "measure": "10s", "drain": "15s"},
        inspect=[{"kind": "rabbitmq", "every": "500ms"}],
        checks={"lost": 0, "response_p99": "<= 500ms"},
    )
    session = launch("run", str(path))
    session.wait_for_measure()
    system = psutil.Process(session.manifest()["system"]["pid"])
    stopped = [system, *system.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        with pytest.raises(psutil.TimeoutExpired):
            system.wait(3)
    finally:
        for process in stopped:
            process.resume()
    ended = session.finish(150)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "VERDICT fail" in ended.stdout
    gaps = "SELECT kind FROM {} WHERE source = 'inspector-rabbitmq' AND kind LIKE 'look-%' ORDER BY t_ns"
    assert [kind for (kind,) in ask(session.run_dir(), "events", gaps)] == ["look-failed", "look-recovered"]


def test_a_system_that_dies_fails_the_run_and_its_inspector_says_when(
    launch: Callable[..., Any], experiment: Callable[..., Path]
) -> None:
    path = experiment(
        system={"kind": "rabbitmq"},
        workload={"rate": 200},
        phases={"warmup": "1s", "measure": "8s", "drain": "3s"},
        inspect=[{"kind": "rabbitmq", "every": "500ms"}, {"kind": "process", "every": "500ms"}],
    )
    session = launch("run", str(path))
    session.wait_for_measure()
    os.kill(session.manifest()["system"]["pid"], signal.SIGKILL)
    ended = session.finish(150)
    assert ended.returncode in {1, 3}, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    failed = "SELECT DISTINCT source FROM {} WHERE kind = 'look-failed' ORDER BY source"
    sources = [source for (source,) in ask(session.run_dir(), "events", failed)]
    assert sources == ["inspector-process", "inspector-rabbitmq"]
    roles = {peer["role"]: peer["ended"] for peer in session.manifest()["peers"]}
    assert roles["inspector"] == "finished"


def test_a_killed_inspector_costs_its_readings_and_not_the_verdict(
    launch: Callable[..., Any], experiment: Callable[..., Path]
) -> None:
    path = experiment(phases=SHORT, workload={"rate": 200}, inspect=[{"kind": "process", "every": "200ms"}])
    session = launch("run", str(path))
    session.wait_for_measure()
    session.peer("inspector").kill()
    ended = session.finish(120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {peer["id"]: peer["ended"] for peer in session.manifest()["peers"]}["inspector-process"] == "lost"


def test_wrong_credentials_for_the_management_are_said_before_anything_is_sent(
    launch: Callable[..., Any], experiment: Callable[..., Path], rabbitmq: Any
) -> None:
    parts = urlsplit(rabbitmq.endpoints["management"])
    wrong = f"http://{parts.username}:wrong@{parts.hostname}:{parts.port}"
    path = experiment(
        system={"url": rabbitmq.endpoints["amqp"]}, phases=SHORT, inspect=[{"kind": "rabbitmq", "url": wrong}]
    )
    session = launch("run", str(path))
    ended = session.finish(120)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "401" in ended.stderr
    assert "inspector-rabbitmq" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(session.out.iterdir()) == []


def test_ctrl_c_takes_the_system_down_too(launch: Callable[..., Any], experiment: Callable[..., Path]) -> None:
    path = experiment(system={"kind": "rabbitmq"}, workload={"rate": 200}, phases={"measure": "60s"})
    session = launch("run", str(path))
    session.wait_for_measure()
    pid = session.manifest()["system"]["pid"]
    session.process.send_signal(signal.SIGINT)
    ended = session.finish(20)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert session.manifest()["state"] == "interrupted"
    assert not psutil.pid_exists(pid)
    assert not (session.run_dir() / "system").exists()
