"""Whole runs in which something is broken on purpose: what they report is compared with the raw recording.

Counts come from DuckDB over the parts, and the truth about an outage from the events of the run: it begins with the
fault, and ends when the receiver is connected again and the sender has sent again.
"""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
import yaml
from pyspark.sql import SparkSession

from broken_nodes import left_groups, mounts_below, state_of, within
from crescendo.faults import guardian
from crescendo.faults.clock import CLOCK, ClockSettings
from crescendo.faults.control_groups import hierarchy_of
from crescendo.faults.loop_disk import why_no_loop_disk
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.model.units import Duration
from crescendo.model.verdict import Outcome
from crescendo.record.table_reader import rows
from crescendo.record.tables import OUTAGES, RECOVERY, RecoveryRow
from crescendo.report.page import render_report
from crescendo.run.startable import check_startable
from whole_runs import Launcher, judged, launching, write_experiment

MS = 10**6
RATE = 200
SLACK_NS = 20 * MS + 3 * 10**9 // RATE
PHASES = {"warmup": "500ms", "measure": "6s", "drain": "3s"}
NO_DISK = why_no_loop_disk()
LONGEST_GAP = """
    select max(gap_ns) from (
        select received_ns - lag(received_ns) over (order by received_ns) as gap_ns from {received})"""
GUARDIAN = guardian.__name__
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see what a guardian waits for")
quiet = pytest.mark.quiet  # a run whose outage is compared with events to some milliseconds
LINE = {"graph_type": "line", "routers": 3, "router_program": "relay"}


def ask(run_dir: Path, query: str) -> list[tuple[Any, ...]]:
    """Query the raw parts with DuckDB, independently of our own readers."""
    tables = {name: f"read_parquet('{run_dir / name}/*.parquet')" for name in ("sent", "received", "events")}
    return duckdb.sql(query.format(**tables)).fetchall()


def lost_messages(run_dir: Path) -> int:
    query = "select count(*) from (select sender, seq from {sent} except select sender, seq from {received})"
    return int(ask(run_dir, query)[0][0])


def events(run_dir: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    found = ask(run_dir, "select t_ns, kind, detail from {events} order by t_ns")
    return [(t_ns, json.loads(detail)) for t_ns, found_kind, detail in found if found_kind == kind]


def read(pid: int, name: str) -> str:
    """A file of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text()
    return ""


def recoveries(run_dir: Path) -> list[RecoveryRow]:
    return rows(run_dir, RECOVERY)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[tuple[Path, Any]]:
    """A run at most once, whose system is restarted in the middle."""
    directory = tmp_path_factory.mktemp("restarted")
    common = {"settle": "at-most-once"}
    path = write_experiment(
        directory / "restarted.yml",
        workload=[
            {"name": "main", "address": ["queue://main"], "rate": RATE, **common},
            # A third of its messages wait in the memory of the relay when that ends, so some are lost for certain.
            {"name": "slow", "address": ["queue://slow?prefetch=5"], "rate": 60, "receive_rate": 40, **common},
        ],
        phases=PHASES,
        faults=[{"at": "measure + 1s", "do": "restart"}],
        checks={"outage": "<= 20s", "recovery_time": "<= 20s", "detection_time": "<= 2s", "lost_acknowledged": 0},
    )
    with launching(directory) as launch:
        session = launch.without_analysis(path)
        ended = session.finish()
        assert ended.stdout.split() == ["sealed"], ended.stderr
        yield session.run_dir(), judged(session, spark)


@quiet
def test_what_a_restart_loses_is_what_was_sent_and_never_arrived(restarted: tuple[Path, Any]) -> None:
    run_dir, summary = restarted
    (row,) = recoveries(run_dir)
    lost = lost_messages(run_dir)
    assert summary.total.lost == summary.total.sent - summary.total.delivered == lost
    assert row.lost == lost > 0, "and all of it belongs to the fault"
    assert row.lost_acknowledged == 0


@quiet
def test_the_outage_is_the_one_that_the_events_tell(restarted: tuple[Path, Any]) -> None:
    run_dir, _ = restarted
    (row,) = recoveries(run_dir)
    ((fault_ns, fault),) = events(run_dir, "fault")
    noted = [t_ns for t_ns, detail in events(run_dir, "reconnect") if detail.get("receiver") == 0]
    ((lost_ns,),) = [(t_ns,) for t_ns, detail in events(run_dir, "disconnect") if detail.get("sender") == 0]
    delivered = ask(run_dir, "select sent_ns, received_ns from {received} where sender = 0 order by sent_ns")
    sent_ns, received_ns = next(times for times in delivered if times[0] > lost_ns)
    (outage,) = [each for each in rows(run_dir, OUTAGES) if each.subscription == "queue://main"]
    assert row.start_ns == fault_ns
    truth_ns = max(*noted, sent_ns) - fault_ns
    assert abs(outage.gap_ns - truth_ns) <= SLACK_NS + (received_ns - sent_ns), "the first message is a part of it"
    assert row.outage_ns is not None
    assert row.outage_ns >= outage.gap_ns
    assert 0 <= fault_ns - fault["planned_ns"] < 100 * MS
    (noticed_ns, _), *_ = events(run_dir, "disconnect")
    assert row.detected_ns == noticed_ns - fault_ns


@quiet
def test_checks_judge_the_recovery_and_the_report_tells_it(restarted: tuple[Path, Any]) -> None:
    run_dir, summary = restarted
    outcomes = {check.metric: check.outcome for check in summary.verdict.checks}
    for metric in ("outage", "recovery_time", "detection_time"):
        assert outcomes[metric] is Outcome.PASS, summary.verdict
    (row,) = recoveries(run_dir)
    values = {check.metric: check.value for check in summary.verdict.checks}
    assert (values["outage"], values["recovery_time"]) == (row.outage_ns, row.recovered_ns)
    page = render_report(run_dir)
    assert re.search(r"Fault 1: The system was restarted at [1-9]\.\d\d s", page)
    assert f"Lost: {row.lost}" in page
    assert page.count('"name":"fault"') + page.count('"name": "fault"') >= 2, "shaded in the charts over time"


def test_a_line_of_routers_without_its_middle_loses_nothing_that_it_acknowledged(
    tmp_path: Path, experiment: Callable[..., Path], launch: Launcher, spark: SparkSession
) -> None:
    (tmp_path / "network.yml").write_text(yaml.safe_dump(LINE))
    path = experiment(
        topology="network.yml",
        workload={"rate": RATE, "senders": 1, "receivers": 1, "send_to": "router1", "receive_from": "router3"},
        phases={"warmup": "500ms", "measure": "3500ms", "drain": "15s"},
        faults=[{"at": "measure + 1s", "on": "router2", "do": "stop", "for": "1s"}],
        checks={"lost_acknowledged": 0, "outage": "<= 500ms"},
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert ended.stdout.split() == ["sealed"], ended.stderr
    summary = judged(session, spark)
    run_dir = session.run_dir()
    outcomes = {check.metric: check.outcome for check in summary.verdict.checks}
    assert outcomes == {"lost_acknowledged": Outcome.PASS, "outage": Outcome.FAIL}, "a second without its middle"
    (row,) = recoveries(run_dir)
    ((fault_ns, _),), ((cure_ns, _),) = events(run_dir, "fault"), events(run_dir, "cure")
    assert row.target == "router2"
    assert row.end_ns == cure_ns
    assert cure_ns - fault_ns >= 10**9
    assert row.outage_ns is not None
    assert row.outage_ns >= 10**9
    assert row.detected_ns is None, "the connections of the load lead to other nodes"
    assert row.lost == lost_messages(run_dir)


DURABLE = [
    ("mosquitto", "mqtt", {"do": "restart"}, {}),
    *[
        (kind, protocol, {"do": "kill", "for": "1s"}, {})
        for kind, protocols in (
            ("rabbitmq", ("amqp091", "stomp", "mqtt")),
            ("artemis", ("amqp10", "core", "openwire", "stomp", "mqtt")),
            ("activemq", ("openwire", "stomp", "amqp10", "mqtt")),
            ("qpid-broker-j", ("amqp10", "amqp091")),
            ("mlmq", ("mlmq",)),
        )
        for protocol in protocols
    ],
    ("mlmq", "mlmq", {"do": "kill", "with": {"only": "broker-1.json"}}, {"brokers": 2}),
]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("kind", "protocol", "fault", "settings"),
    [pytest.param(*case, marks=() if case[0] == "mosquitto" else pytest.mark.soak) for case in DURABLE],
)
def test_nothing_durable_and_acknowledged_is_lost(
    kind: str,
    protocol: str,
    fault: dict[str, Any],
    settings: dict[str, Any],
    experiment: Callable[..., Path],
    launch: Launcher,
    spark: SparkSession,
) -> None:
    address = "topic://kept?subscription=kept" if protocol == "mqtt" else "queue://kept?durable=yes"
    path = experiment(
        system={"kind": kind, "settings": settings},
        workload={
            "protocol": protocol,
            "address": ["queue://kept" if kind == "mlmq" else address],
            "senders": 1,
            "receivers": 1,
            "rate": RATE,
        },
        phases={"warmup": "500ms", "measure": "3s" if kind == "mosquitto" else "20s", "drain": "30s"},
        faults=[{"at": "measure + 1s", **fault}],
        checks={"lost": 0},
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert ended.stdout.split() == ["sealed"], ended.stderr
    summary = judged(session, spark)
    (row,) = recoveries(session.run_dir())
    assert (summary.total.lost, row.lost, lost_messages(session.run_dir())) == (0, 0, 0)
    assert summary.total.sent > RATE, "and there was something to lose"
    assert row.detected_ns is not None


QUORUM = {"nodes": 3, "queues": ["kept"]}
ON_A_DISK = [
    *[(kind, {}, name, "system") for kind, name in (("artemis", "amqp10"), ("rabbitmq", "amqp091"), ("mlmq", "mlmq"))],
    ("activemq", {}, "stomp", "system"),
    ("artemis", {"failover": "replication"}, "amqp10", "node1"),
    ("artemis", {"failover": "shared-store"}, "core", "node1"),
    ("activemq", {"failover": "shared-store"}, "openwire", "node1"),
    *[("rabbitmq", QUORUM, "amqp091", node) for node in ("node1", "node2")],
]


@pytest.mark.soak
@pytest.mark.timeout(200)
@pytest.mark.skipif(bool(NO_DISK or CLOCK.why_not(ClockSettings(Duration(1)))), reason="no disk or clock of its own")
@pytest.mark.parametrize(("kind", "settings", "protocol", "node"), ON_A_DISK)
def test_a_disk_that_stands_still_and_a_clock_that_jumps_cost_no_message(
    kind: str,
    settings: dict[str, Any],
    protocol: str,
    node: str,
    experiment: Callable[..., Path],
    launch: Launcher,
) -> None:
    path = experiment(
        system={"kind": kind, "settings": settings},
        workload={
            "protocol": protocol,
            "address": ["queue://kept" if kind == "mlmq" else "queue://kept?durable=yes"],
            "senders": 1,
            "receivers": 1,
            "rate": RATE,
        },
        phases={"warmup": "500ms", "measure": "8s", "drain": "30s"},
        faults=[
            {"at": "measure + 1s", "on": node, "do": "disk", "for": "2s", "with": {"state": "frozen"}},
            {"at": "measure + 5s", "on": node, "do": "clock", "for": "1s", "with": {"forward": "1h"}},
        ],
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert ended.stdout.split() == ["sealed"], ended.stderr
    run_dir = session.run_dir()
    assert [detail["means"] for _, detail in events(run_dir, "fault")] == ["fsfreeze", "libfaketime"]
    assert lost_messages(run_dir) == 0
    ((longest_ns,),) = ask(run_dir, LONGEST_GAP)
    waits = settings is not QUORUM  # there the disks of most members are enough, whoever leads
    assert (longest_ns > 10**9) is waits, "what is durable waits for the disk"
    assert mounts_below(run_dir) == []


@needs_root
def test_a_run_killed_in_a_fault_leaves_nothing_though_its_guardian_was_killed_before(
    experiment: Callable[..., Path], launch: Launcher
) -> None:
    path = experiment(
        workload={"rate": 50},
        faults=[
            {"at": "100ms", "do": "cpu", "with": {"share": 0.5}},
            *([] if NO_DISK else [{"at": "200ms", "do": "disk", "with": {"state": "frozen", "size": "64MiB"}}]),
            {"at": "300ms", "do": "pause"},
        ],
    )
    session = launch.without_analysis(path)

    def everything() -> list[psutil.Process]:
        return psutil.Process(session.process.pid).children(recursive=True)

    def is_broken() -> bool:
        paused = any(state_of(process.pid) == "T" for process in everything())
        mounted = bool(mounts_below(session.out))
        return (
            paused
            and mounted is not bool(NO_DISK)
            and (hierarchy_of("cpu") is None or bool(left_groups(session.process.pid)))
        )

    def guardians() -> list[int]:
        """Those that wait for the next line of their input."""
        return [
            process.pid
            for process in everything()
            if GUARDIAN in read(process.pid, "cmdline") and read(process.pid, "syscall").startswith("0 0x0 ")
        ]

    assert within(60, is_broken)
    (killed,) = guardians()
    os.kill(killed, signal.SIGKILL)
    assert within(60, lambda: guardians() not in ([], [killed])), "another one takes its place"
    time.sleep(0.5)  # in which it learns what is owed
    assert is_broken()
    family = [process.pid for process in everything()]
    os.kill(session.process.pid, signal.SIGKILL)
    session.process.communicate()
    assert within(20, lambda: not any(psutil.pid_exists(pid) and state_of(pid) not in {"", "Z"} for pid in family))
    assert within(20, lambda: left_groups(session.process.pid) == [])
    assert within(20, lambda: mounts_below(session.out) == [])


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"do": "stopp"}, "faults[0].do: no action is called 'stopp'; did you mean 'stop'?"),
        ({"do": "stop"}, "faults[0].for: stop needs a length"),
        ({"do": "restart", "for": "1s"}, "faults[0].for: restart has no length"),
        ({"do": "pause", "on": "router2"}, "faults[0].on: there is no node 'router2'; write system"),
        ({"do": "cpu", "with": {"chare": 1}}, "settings of cpu: share"),
        ({"do": "command", "with": {"run": ["true"]}}, "only if CRESCENDO_ALLOW_COMMANDS=1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_before_anything_starts(
    fault: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRESCENDO_ALLOW_COMMANDS", raising=False)
    with pytest.raises(ConfigError) as raised:
        check_startable(experiment_from({"faults": [{"at": "1s", **fault}]}, default_name="x"))
    assert sentence in str(raised.value)


def test_what_crescendo_did_not_start_it_does_not_break() -> None:
    document = {"system": {"url": "amqp://127.0.0.1"}, "faults": [{"at": "1s", "do": "pause"}]}
    with pytest.raises(ConfigError, match="did not start the system"):
        check_startable(experiment_from(document, default_name="x"))


FAULT_FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*/faults/*.yml"))


@pytest.mark.parametrize("path", FAULT_FILES, ids=lambda path: path.stem)
def test_every_experiment_with_faults_can_be_started(path: Path) -> None:
    found = load_experiment(path)
    assert found.faults
    assert found.name == path.stem
    check_startable(found)
