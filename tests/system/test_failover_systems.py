"""Pairs and clusters of brokers whose serving node is killed in mid-run: nothing acknowledged may be lost.

Counts come from DuckDB over the parts of the recording, which shares nothing with our ledger. That another node took
over is seen from outside: the killed one stays dead, and the load went on.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psutil
import pytest
from pyspark.sql import SparkSession

from broker_traces import AWKWARD_PASSWORD
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.model.verdict import Outcome
from crescendo.record.table_reader import rows
from crescendo.record.tables import RECOVERY
from crescendo.run.startable import check_startable
from crescendo.systems.registry import system_of
from crescendo.systems.settings import settings_of
from whole_runs import Launcher, Session, judged

RATE = 100
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
    clients: int = 1  # of each role

    @property
    def name(self) -> str:
        mode = self.settings.get("failover") or self.settings.get("nodes") or self.settings.get("brokers")
        return f"{self.kind}-{mode}-{self.protocol}"


def cases(kind: str, settings: dict[str, Any], *protocols: str) -> list[Case]:
    topic = "topic://kept?subscription=kept"
    return [Case(kind, settings, name, topic if name == "mqtt" else QUEUE) for name in protocols]


FIRST_SERVES = [
    *cases("artemis", {"failover": "replication", **SMALL}, "amqp10", "core", "stomp", "openwire", "mqtt"),
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
OF_EVERY_SYSTEM = list({(case.kind, case.settings.get("failover")): case for case in reversed(FIRST_SERVES)}.values())
IN_THE_SUITE = list({case.kind: case for case in reversed(FIRST_SERVES)}.values())


def count(run_dir: Path, query: str) -> int:
    parts = {name: f"read_parquet('{run_dir / name}/*.parquet')" for name in ("sent", "settled", "received", "events")}
    return int(duckdb.sql(query.format(**parts)).fetchall()[0][0])


def lost_acknowledged(run_dir: Path) -> int:
    return count(run_dir, LOST)


def killed_in_mid_run(case: Case, experiment: Callable[..., Path], launch: Launcher) -> Session:
    """A run whose serving node is killed for good, and what must hold in the raw recording."""
    path = experiment(
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
        faults=[{"at": "measure + 1s", **case.fault}],
        checks={"lost_acknowledged": 0, "outage": "<= 30s"},
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert ended.stdout.split() == ["sealed"], ended.stderr
    run_dir = session.run_dir()
    assert lost_acknowledged(run_dir) == 0
    assert count(run_dir, "select count(distinct (sender, seq)) from {sent}") == 2 * RATE * case.clients, (
        "and there was something to lose"
    )
    assert not case.resumes or count(run_dir, SENT_AFTERWARDS) > 0
    # A sender and a receiver; clients of MLMQ take its brokers in turn, so one of each pair is at the dead one.
    assert count(run_dir, "select count(*) from {events} where kind = 'reconnect'") >= 2
    return session


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case in IN_THE_SUITE else pytest.mark.soak)
        for case in FIRST_SERVES[1:]
    ],
)
def test_another_node_takes_over_and_keeps_what_was_acknowledged(
    case: Case, experiment: Callable[..., Path], launch: Launcher
) -> None:
    killed_in_mid_run(case, experiment, launch)


@pytest.mark.timeout(240)
def test_the_verdict_and_the_recovery_of_a_pair_are_those_of_its_recording(
    experiment: Callable[..., Path], launch: Launcher, spark: SparkSession
) -> None:
    session = killed_in_mid_run(FIRST_SERVES[0], experiment, launch)
    summary = judged(session, spark)
    assert {check.metric: check.outcome for check in summary.verdict.checks} == {
        "lost_acknowledged": Outcome.PASS,
        "outage": Outcome.PASS,
    }
    (row,) = rows(session.run_dir(), RECOVERY)
    assert row.target == "node1"
    assert row.detected_ns is not None
    assert (row.lost_acknowledged, row.end_ns) == (0, None), "it stayed dead"


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
    document["faults"] = [{"at": "1s", "on": "node1", "do": "clock", "with": {"back": "1s"}}]
    with pytest.raises(ConfigError, match="for a whole system"):
        check_startable(experiment_from(document, default_name="x"))


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FAILOVER_FILES = sorted([*EXPERIMENTS.glob("*/failover*.yml"), *EXPERIMENTS.glob("failover/*.yml")])


@pytest.mark.parametrize("path", FAILOVER_FILES, ids=lambda path: path.stem)
def test_every_experiment_about_failover_can_be_started(path: Path) -> None:
    found = load_experiment(path)
    assert found.faults
    check_startable(found)
