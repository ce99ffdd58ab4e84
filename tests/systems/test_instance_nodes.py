"""Can one node of a system end and start while the others go on, and does each of its turns look right from outside?

Two programs share a lock file: who has it listens, the other one says that it waits, as pairs of brokers do.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crescendo.model.experiment_file import experiment_from
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.ending import processes_with
from crescendo.run.planning import SystemUnderTest, plan_run
from crescendo.systems.base import Blueprint, Installation, Launch
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.instance_node import InstanceNode, nodes_of
from crescendo.systems.ports import accepts
from plain_kind import PlainKind

TURNS = """
import fcntl, socket, sys, time
lock = open(sys.argv[2], "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("it waits for its turn", flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


class PairKind(PlainKind):
    """Two programs, of which one serves."""

    ports = ("amqp", "amqp-2")

    def plan(self, settings: Any, found: Installation, directory: Path, ports: Mapping[str, int]) -> Blueprint:
        lock = str(directory / "data" / "lock")
        launches = tuple(
            Launch(
                name,
                ("/usr/bin/python3", "-c", TURNS, str(ports[port]), lock),
                listens_on=ports[port],
                stands_by=("it waits for its turn",),
                node=name,
            )
            for name, port in (("node1", "amqp"), ("node2", "amqp-2"))
        )
        urls = [{"amqp": f"amqp://127.0.0.1:{ports[port]}"} for port in ("amqp", "amqp-2")]
        plain = super().plan(settings, found, directory, ports)
        return replace(plain, launches=launches, endpoints=urls[0], serving=0, further_nodes=(urls[1],))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RunningInstance, dict[str, InstanceNode]]]:
    instance = start(PairKind(), {}, directory=tmp_path / "it", on_fork=die_with_parent())
    yield instance, nodes_of(instance)
    instance.stop()
    assert processes_with(instance.token) == []


def serves(node: InstanceNode) -> bool:
    return accepts(node.ports["amqp"])


def soon(node: InstanceNode) -> bool:
    deadline_s = time.monotonic() + 10
    while not serves(node) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return serves(node)


def test_the_first_node_serves_and_the_second_takes_over(pair: tuple[RunningInstance, dict[str, InstanceNode]]) -> None:
    instance, nodes = pair
    first, second = nodes["node1"], nodes["node2"]
    assert (serves(first), serves(second)) == (True, False)
    assert {process.pid for process in processes_with(instance.token)} == {
        process.pid for process in instance.processes
    }
    assert [process.pid for process in processes_with(first.token)] == [first.main_process.pid]
    killed = first.main_process.pid
    first.crash()
    assert soon(second)
    assert "SIGKILL" in str(first.exit())
    assert second.exit() is None
    first.restart(on_fork=die_with_parent())
    assert first.main_process.pid != killed
    assert first.exit() is None
    assert not serves(first), "it stands by"
    second.end()
    assert soon(first)
    assert [process.name for process in instance.processes] == ["node1", "node2"]


def test_lost_connections_try_the_addresses_of_all_nodes_if_they_come_back() -> None:
    def urls_of(address: object) -> list[str]:
        experiment = experiment_from({"workload": {"address": address, "rate": 1}}, default_name="x")
        further = [{"amqp": f"amqp://127.0.0.1:{port}"} for port in (2, 3)]
        system = SystemUnderTest({"amqp": "amqp://127.0.0.1:1"}, further_nodes=further)
        plan = plan_run(experiment, tag=1, system=system).plan
        groups = [peer.assignment["experiment"]["workload"][0] for peer in plan.peers]
        assert len({str(group) for group in groups}) == 1
        return [groups[0]["address"], *(groups[0].get("failover") or ())]

    assert urls_of(["queue://a?durable=yes"]) == [
        "amqp://127.0.0.1:1/queue/a?durable=yes",
        "amqp://127.0.0.1:2/queue/a?durable=yes",
        "amqp://127.0.0.1:3/queue/a?durable=yes",
    ]
    assert urls_of("queue://a") == ["queue://a"], "a client without reconnection has one address"
