"""Does a run start, load, inspect and stop every AMQP 1.0 system, and what happens if the system misbehaves?"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import psutil
import pytest
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from whole_runs import Launcher, Session, judged, launching, write_experiment

AMQP10 = ["rabbitmq", "activemq", "artemis", "qpid-broker-j"]
if shutil.which("qdrouterd"):
    AMQP10.append("qpid-dispatch")
SHORT = {"warmup": "1s", "measure": "3s", "drain": "10s"}


def ask(run_dir: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    """Query the raw parts with DuckDB, independently of our own readers."""
    return duckdb.sql(query.format(f"read_parquet('{run_dir / table}/*.parquet')")).fetchall()


def executed(session: Session) -> None:
    """Wait until a run without analysis has ended, and assert that the run itself succeeded."""
    ended = session.finish(150)
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """A run on each system, all at once, because they mostly wait."""
    with ExitStack() as stack:
        sessions = {}
        for kind in AMQP10:
            directory = tmp_path_factory.mktemp(kind)
            path = write_experiment(
                directory / "trial.yml",
                system={"kind": kind},
                workload={"rate": 200},
                phases=SHORT,
                inspect=[{"kind": kind, "every": "500ms"}, {"kind": "process", "every": "250ms"}],
                checks={"lost": 0},  # and no rate: beside three others a broker may be slow
            )
            sessions[kind] = stack.enter_context(launching(directory)).without_analysis(path)
        yield sessions


@pytest.mark.parametrize("kind", AMQP10)
def test_a_run_starts_the_system_inspects_it_and_leaves_nothing_behind(
    kind: str, loaded: dict[str, Session], spark: SparkSession
) -> None:
    session = loaded[kind]
    executed(session)
    assert judged(session, spark).verdict.outcome is Outcome.PASS
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
    assert counts[f"inspector-{kind}"] >= 2
    assert counts["inspector-process"] >= 4


def test_a_system_that_hangs_shows_as_a_gap_and_slow_responses_not_as_an_invalid_run(
    launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    path = experiment(
        system={"kind": "rabbitmq"},
        workload={"rate": 200},
        phases={"warmup": "1s", "measure": "8s", "drain": "15s"},
        inspect=[{"kind": "rabbitmq", "every": "500ms"}],
        checks={"lost": 0, "response_p99": "<= 500ms"},
    )
    session = launch.without_analysis(path)
    session.wait_for_measure()
    system = psutil.Process(session.manifest()["system"]["pid"])
    stopped = [system, *system.children(recursive=True)]
    hung_ns = time.monotonic_ns()
    for process in stopped:
        process.suspend()
    try:
        with pytest.raises(psutil.TimeoutExpired):
            system.wait(3)
    finally:
        for process in stopped:
            process.resume()
    executed(session)
    assert judged(session, spark).verdict.outcome is Outcome.FAIL
    gaps = "SELECT t_ns, kind FROM {} WHERE source = 'inspector-rabbitmq' AND kind LIKE 'look-%' ORDER BY t_ns"
    found = ask(session.run_dir(), "events", gaps)
    recovered = next(n for n, (t_ns, kind) in enumerate(found) if t_ns >= hung_ns and kind == "look-recovered")
    assert found[recovered - 1][1] == "look-failed"  # on a busy machine it may have failed even before the hang


@dataclass
class Death:
    """A run whose system was killed, and how long it went on after that."""

    session: Session
    ended: subprocess.CompletedProcess[str]
    seconds: float


def killed_in(phase: str, kind: str, directory: Path, stack: ExitStack) -> Death:
    lengths = {"warmup": "0s", "measure": "1s", "drain": "60s"} | {phase: "60s"}
    path = write_experiment(
        directory / "trial.yml",
        system={"kind": kind},
        workload={"rate": 200, "receive_rate": 5 if phase == "drain" else 100_000},
        phases=lengths,
    )
    session = stack.enter_context(launching(directory)).without_analysis(path)
    session.wait_for_measure()  # or for whatever the first message belongs to
    time.sleep(3 if phase == "drain" else 0.5)
    os.kill(session.manifest()["system"]["pid"], signal.SIGKILL)
    killed_s = time.monotonic()
    ended = session.finish(150)
    return Death(session, ended, time.monotonic() - killed_s)


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Death]]:
    """All at once, because the runs mostly wait."""
    cases = [("measure", "rabbitmq"), *((phase, "loopback") for phase in ("warmup", "measure", "drain"))]
    directories = [tmp_path_factory.mktemp(f"{phase}-{kind}") for phase, kind in cases]
    with ExitStack() as stack, ThreadPoolExecutor(len(cases)) as pool:
        found = [
            pool.submit(killed_in, *case, directory, stack) for case, directory in zip(cases, directories, strict=True)
        ]
        yield {case: death.result() for case, death in zip(cases, found, strict=True)}


def test_a_system_that_dies_is_the_reason_of_the_verdict(
    deaths: dict[tuple[str, str], Death], spark: SparkSession
) -> None:
    death = deaths["measure", "rabbitmq"]
    assert death.seconds < 30, "it waited for the measure phase or the drain"
    assert death.ended.returncode == 0, death.ended.stderr
    assert "Traceback" not in death.ended.stdout + death.ended.stderr
    verdict = judged(death.session, spark).verdict
    assert verdict.outcome is Outcome.INVALID
    reasons = " ".join(reason for check in verdict.checks for reason in check.reasons)
    assert re.search(
        r"rabbitmq ended (by SIGKILL|with exit code 137), \d+\.\d s into measure; last log lines: ", reasons
    )


@pytest.mark.usefixtures("spark")  # so that one worker has all deaths
@pytest.mark.parametrize("phase", ["warmup", "measure", "drain"])
def test_a_system_that_dies_ends_the_run_at_once_in_every_phase(
    phase: str, deaths: dict[tuple[str, str], Death]
) -> None:
    death = deaths[phase, "loopback"]
    assert death.seconds < 30
    assert death.ended.stdout == "incomplete\n", death.ended.stderr
    assert re.match(rf"loopback ended by SIGKILL, \d+\.\d s into {phase}\b", death.session.manifest()["reason"])


def test_after_a_killed_inspector_the_others_finish_and_the_run_never_passes(
    launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    path = experiment(phases=SHORT, workload={"rate": 200}, inspect=[{"kind": "process", "every": "200ms"}])
    session = launch.without_analysis(path)
    session.wait_for_measure()
    session.peer("inspector").kill()
    ended = session.finish(150)
    assert (ended.returncode, ended.stdout) == (0, "incomplete\n"), ended.stderr
    verdict = judged(session, spark).verdict
    assert verdict.outcome is Outcome.INVALID
    assert all("lost inspector-process" in " ".join(check.reasons) for check in verdict.checks)
    assert {peer["id"]: peer["ended"] for peer in session.manifest()["peers"]}["inspector-process"] == "lost"


def test_wrong_management_credentials_are_reported_before_anything_is_sent(
    launch: Launcher, experiment: Callable[..., Path], rabbitmq: Any
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
