"""Pairs and clusters of brokers whose serving node is killed in mid-run: nothing acknowledged may be lost.

Counts come from DuckDB over the parts of the recording, which shares nothing with our ledger. That another node took
over is seen from outside: the killed one stays dead, and the load went on.
"""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psutil
import pytest
from pyspark.sql import SparkSession

from broker_traces import AWKWARD_PASSWORD
from crescendo.faults.clock import CLOCK, ClockSettings
from crescendo.faults.loop_disk import why_no_loop_disk
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.model.units import Duration
from crescendo.model.verdict import Outcome
from crescendo.record.table_reader import rows
from crescendo.record.tables import RECOVERY
from crescendo.run.startable import check_startable
from crescendo.systems.registry import system_of
from crescendo.systems.settings import settings_of
from whole_runs import Launcher, Session, judged, launching, write_experiment

RATE = 100
AT_ONCE = 2
QUEUE = "queue://kept?durable=yes"
PASSWORD = f"#{{1}}${{a:b}}{AWKWARD_PASSWORD}"
"""Its characters mean something to Spring and to Artemis, too, in whose files the nodes of a pair find each other."""

SMALL = {"memory": "256MiB", "password": PASSWORD}
FIRST_NODE: Mapping[str, Any] = {"on": "node1", "do": "kill"}
LOST = """
    select count(*) from (
        select sender, unnest(generate_series(first_seq, last_seq)) as seq from {settled} where outcome = 1
        except select sender, seq from {received})"""
SENT_AFTERWARDS = """
    select count(*) from {received}
    where sent_ns > (select min(t_ns) from {events} where kind = 'fault') + 1000000"""


class Case(NamedTuple):
    """A system of several nodes, and a protocol that it speaks."""

    kind: str
    settings: dict[str, Any]
    protocol: str
    address: str = QUEUE
    fault: Mapping[str, Any] = FIRST_NODE
    resumes: bool = True
    before: tuple[Mapping[str, Any], ...] = ()  # faults of another node, which nobody may notice
    clients: int = 1  # of each role

    @property
    def name(self) -> str:
        mode = self.settings.get("failover") or self.settings.get("nodes") or self.settings.get("brokers")
        return f"{self.kind}-{mode}-{self.protocol}"


def cases(kind: str, settings: dict[str, Any], *protocols: str) -> list[Case]:
    topic = "topic://kept?subscription=kept"
    return [Case(kind, settings, name, topic if name == "mqtt" else QUEUE) for name in protocols]


ON_NODE2: Mapping[str, Any] = {"at": "measure + 200ms", "on": "node2", "for": "300ms"}
BREAKABLE = not (why_no_loop_disk() or CLOCK.why_not(ClockSettings(Duration(1))))
WHILE_STANDING_BY: tuple[Mapping[str, Any], ...] = (
    {**ON_NODE2, "do": "disk", "with": {"state": "frozen"}},
    {**ON_NODE2, "do": "clock", "with": {"back": "1h"}},
)
FIRST_SERVES = [
    *(
        case._replace(before=WHILE_STANDING_BY if BREAKABLE else ())
        for case in cases("artemis", {"failover": "replication", **SMALL}, "amqp10")
    ),
    *cases("artemis", {"failover": "replication", **SMALL}, "core", "stomp", "openwire", "mqtt"),
    *cases("artemis", {"failover": "shared-store", **SMALL}, "core", "amqp10", "stomp", "openwire", "mqtt"),
    *cases("activemq", {"failover": "shared-store", **SMALL}, "stomp", "openwire", "amqp10", "mqtt"),
    *cases("activemq", {"failover": "jdbc", **SMALL}, "openwire", "stomp", "amqp10", "mqtt"),
    *(
        # RabbitMQ 3.10 refuses or forgets what it gets before a leader is elected (docs/faults.md).
        case._replace(resumes=False)
        for case in cases(
            "rabbitmq", {"nodes": 3, "queues": ["kept"], "password": PASSWORD}, "amqp091", "stomp", "amqp10"
        )
    ),
    Case("mlmq", {"brokers": 2}, "mlmq", "queue://kept", {"do": "kill", "with": {"only": "broker-1.json"}}, clients=2),
]
OF_EVERY_SYSTEM = list({(each.kind, each.settings.get("failover")): each for each in reversed(FIRST_SERVES)}.values())[
    ::-1
]

IN_THE_SUITE = list({case.kind: case for case in reversed(FIRST_SERVES)}.values())[::-1]


def count(run_dir: Path, query: str) -> int:
    parts = {name: f"read_parquet('{run_dir / name}/*.parquet')" for name in ("sent", "settled", "received", "events")}
    return int(duckdb.sql(query.format(**parts)).fetchall()[0][0])


def lost_acknowledged(run_dir: Path) -> int:
    return count(run_dir, LOST)


def killed_in_mid_run(case: Case, launch: Launcher, path: Path) -> tuple[Session, subprocess.CompletedProcess[str]]:
    """A run whose serving node is killed for good, and how it ended."""
    write_experiment(
        path,
        system={"kind": case.kind, "settings": case.settings},
        workload={
            "protocol": case.protocol,
            "address": [case.address],
            "senders": case.clients,
            "receivers": case.clients,
            "rate": RATE,
            "settle": "at-least-once",
            "connection": {"confirm_timeout": "5s"},
        },
        # The drain ends when everything has arrived; a node may need long to take over on a busy machine.
        phases={"warmup": "0s", "measure": "2s", "drain": "60s" if case.resumes else "15s"},
        faults=[*case.before, {"at": "measure + 1s", **case.fault}],
        checks={"lost_acknowledged": 0, "outage": "<= 30s"},
    )
    session = launch.without_analysis(path)
    return session, session.finish()


@pytest.fixture(scope="module")
def taken_over(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[Session, subprocess.CompletedProcess[str]]]]:
    """A run of each kind of system, some at the same time: they wait a lot."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        directories = [tmp_path_factory.mktemp(case.name) for case in IN_THE_SUITE]
        launchers = [stack.enter_context(launching(directory)) for directory in directories]
        paths = [directory / "trial.yml" for directory in directories]
        found = list(pool.map(killed_in_mid_run, IN_THE_SUITE, launchers, paths))
        yield {case.name: each for case, each in zip(IN_THE_SUITE, found, strict=True)}


def check_kept(case: Case, session: Session, ended: subprocess.CompletedProcess[str]) -> None:
    """What must hold in the raw recording."""
    assert ended.stdout.split() == ["sealed"], ended.stderr
    run_dir = session.run_dir()
    assert lost_acknowledged(run_dir) == 0
    assert count(run_dir, "select count(distinct (sender, seq)) from {sent}") == 2 * RATE * case.clients, (
        "and there was something to lose"
    )
    assert count(run_dir, "select count(*) from {events} where kind = 'fault'") == 1 + len(case.before)
    assert not case.resumes or count(run_dir, SENT_AFTERWARDS) > 0
    # A sender and a receiver; clients of MLMQ take its brokers in turn, so one of each pair is at the dead one.
    assert count(run_dir, "select count(*) from {events} where kind = 'reconnect'") >= 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", IN_THE_SUITE, ids=lambda case: case.name)
def test_another_node_takes_over_and_keeps_what_was_acknowledged(
    case: Case, taken_over: dict[str, tuple[Session, subprocess.CompletedProcess[str]]]
) -> None:
    check_kept(case, *taken_over[case.name])


@pytest.mark.soak  # Spark is the longest part of the suite; the line of routers in test_faulty_runs.py is judged there
@pytest.mark.timeout(300)
def test_the_verdict_and_the_recovery_of_a_pair_are_those_of_its_recording(
    taken_over: dict[str, tuple[Session, subprocess.CompletedProcess[str]]], spark: SparkSession
) -> None:
    session, _ = taken_over[IN_THE_SUITE[0].name]
    summary = judged(session, spark)
    assert {check.metric: check.outcome for check in summary.verdict.checks} == {
        "lost_acknowledged": Outcome.PASS,
        "outage": Outcome.PASS,
    }
    *_, row = rows(session.run_dir(), RECOVERY)
    assert row.target == "node1"
    assert row.detected_ns is not None
    assert (row.lost_acknowledged, row.end_ns) == (0, None), "it stayed dead"


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "case", [case for case in FIRST_SERVES if case not in IN_THE_SUITE], ids=lambda case: case.name
)
def test_the_same_holds_in_every_protocol(case: Case, tmp_path: Path, launch: Launcher) -> None:
    check_kept(case, *killed_in_mid_run(case, launch, tmp_path / "trial.yml"))


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", OF_EVERY_SYSTEM, ids=lambda case: case.name)
def test_a_killed_run_leaves_no_node_and_no_database(
    case: Case, experiment: Callable[..., Path], launch: Launcher
) -> None:
    path = experiment(
        system={"kind": case.kind, "settings": case.settings},
        workload={"protocol": case.protocol, "address": [case.address], "rate": RATE},
        phases={"warmup": "0s", "measure": "60s", "drain": "5s"},
        faults=[{"at": "measure + 500ms", **case.fault}],
    )
    session = launch.without_analysis(path)
    session.wait_for_measure(120)
    family = session.family()
    assert len(family) > 4
    session.process.kill()
    session.process.communicate()
    gone, alive = psutil.wait_procs(family, 20)
    assert [process.pid for process in alive] == []
    assert len(gone) == len(family)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_killed_node_that_returns_stands_by_and_takes_over_in_its_turn(
    experiment: Callable[..., Path], launch: Launcher, spark: SparkSession
) -> None:
    path = experiment(
        system={"kind": "artemis", "settings": {"failover": "replication", **SMALL}},
        workload={"protocol": "core", "address": [QUEUE], "rate": RATE, "settle": "at-least-once"},
        phases={"warmup": "1s", "measure": "60s", "drain": "60s"},
        faults=[
            {"at": "measure + 2s", "on": "node1", "do": "kill", "for": "2s"},
            {"at": "measure + 40s", "on": "node2", "do": "kill"},
        ],
        checks={"lost_acknowledged": 0},
    )
    session = launch.without_analysis(path)
    assert session.finish().stdout.split() == ["sealed"]
    assert judged(session, spark).total.lost_acknowledged == lost_acknowledged(session.run_dir()) == 0


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("artemis", {"failover": "jdbc"}, "failover"),
        ("artemis", {"failover": "replication", "persistence": False}, "could not take over what was never stored"),
        ("activemq", {"failover": "shared-store", "tls": True}, "are not encrypted"),
        ("rabbitmq", {"nodes": 3}, "queues: name the queues"),
        ("rabbitmq", {"nodes": 2, "queues": ["a"]}, "nodes"),
        ("rabbitmq", {"nodes": 3, "queues": ["a"], "tls": True}, "are not encrypted"),
    ],
)
def test_what_several_nodes_cannot_do_is_refused(kind: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of(system_of(kind), settings)
    assert sentence in str(raised.value)


def test_a_fault_names_a_node_that_the_system_has() -> None:
    document = {
        "system": {"kind": "rabbitmq", "settings": {"nodes": 3, "queues": ["perf"]}},
        "workload": {"protocol": "amqp091"},
        "faults": [{"at": "1s", "on": "node3", "do": "kill"}],
    }
    check_startable(experiment_from(document, default_name="x"))
    document["faults"] = [{"at": "1s", "on": "node4", "do": "kill"}]
    with pytest.raises(ConfigError, match="there is no node 'node4'"):
        check_startable(experiment_from(document, default_name="x"))
    clock = {"at": "1s", "do": "clock", "with": {"back": "1s"}}
    document["faults"] = [{**clock, "on": "node1"}, clock]
    with pytest.raises(ConfigError, match="the whole system or its nodes, not both"):
        check_startable(experiment_from(document, default_name="x"))
    document["system"] = {"kind": "activemq", "settings": {"failover": "jdbc"}}
    document["workload"] = {"protocol": "stomp"}
    document["faults"] = [{"at": "1s", "on": "node1", "do": "disk", "with": {"state": "full"}}]
    with pytest.raises(ConfigError, match="keep no messages on a disk of their own"):
        check_startable(experiment_from(document, default_name="x"))


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FAILOVER_FILES = sorted([*EXPERIMENTS.glob("*/failover*.yml"), *EXPERIMENTS.glob("failover/*.yml")])


@pytest.mark.parametrize("path", FAILOVER_FILES, ids=lambda path: path.stem)
def test_every_experiment_about_failover_can_be_started(path: Path) -> None:
    found = load_experiment(path)
    assert found.faults
    check_startable(found)
