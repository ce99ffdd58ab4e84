"""Routers on the machines of an inventory: real Ansible, real relays, on addresses of the loopback network."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from crescendo.client.amqp10 import Amqp10Client
from crescendo.model.errors import ConfigError
from crescendo.topology.ansible_deployment import deploy, take_down
from crescendo.topology.generate import Network, generate
from crescendo.topology.rendering.access import Access
from crescendo.topology.topology_file import load_topology

LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable}"


def network_at(directory: Path, *machines: str, more: str = "") -> Network:
    (directory / "inventory").write_text("[routers]\n" + "\n".join(machines) + "\n")
    (directory / "line.yml").write_text(f"hostfile: inventory\ngraph_type: line\nrouter_program: relay\n{more}")
    return generate(load_topology(directory / "line.yml"))


def silent(_: str) -> None:
    pass


def relays(directory: Path) -> list[int]:
    return [
        process.pid for process in psutil.process_iter(["cmdline"]) if str(directory) in str(process.info["cmdline"])
    ]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    found = tmp_path / "work"
    found.mkdir(mode=0o700)
    return found


@pytest.mark.timeout(400)
def test_routers_come_up_stay_as_they_are_and_leave_nothing(tmp_path: Path, work: Path) -> None:
    ports = "ports: {normal: 25711, inter-router: 25811}\n"
    machines = [f"router{number} ansible_host=127.0.7.{number} {LOCAL}" for number in (1, 2)]
    network, nodes = network_at(tmp_path, *machines, more=ports), tmp_path / "nodes"
    try:
        done = deploy(network, Access(), work, silent, directory=str(nodes))
        assert sorted(tasks[-1] for tasks in done.changed.values()) == ["start router1", "start router2"]
        started = relays(nodes)
        assert len(started) == 2
        carries_a_message("127.0.7.1:25711", "127.0.7.2:25712")
        assert deploy(network, Access(), work, silent, directory=str(nodes)).changed == {}
        assert relays(nodes) == started
        assert {path.stat().st_mode & 0o077 for path in nodes.glob("*/relay.json")} == {0}
        os.kill(started[0], signal.SIGKILL)
        take_down(network, work, silent, directory=str(nodes))
        assert relays(nodes) == []
    finally:
        for pid in relays(nodes):
            os.kill(pid, signal.SIGKILL)
    assert list(nodes.iterdir()) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_check_says_what_would_change_and_changes_nothing(tmp_path: Path, work: Path) -> None:
    network, nodes = network_at(tmp_path, f"router1 {LOCAL}", f"router2 {LOCAL}"), tmp_path / "nodes"
    would = deploy(network, Access(), work, silent, check=True, directory=str(nodes))
    assert set(would.changed) == {"router1", "router2"}
    assert not nodes.exists()


def carries_a_message(first: str, last: str) -> None:
    with Amqp10Client(f"amqp://{last}") as receiver, Amqp10Client(f"amqp://{first}") as sender:
        sending = threading.Thread(target=sender.send, args=("orders", b"hello"))  # ends when it is accepted
        sending.start()
        assert receiver.receive("orders", 10.0) == b"hello"
        sending.join(10.0)
        assert not sending.is_alive()


@pytest.mark.timeout(300)
def test_machines_that_cannot_carry_their_nodes_are_named_and_what_was_started_is_stopped(
    tmp_path: Path, work: Path
) -> None:
    machines = [
        f"router1 ansible_host=127.0.7.1 {LOCAL}",
        f"router2 {LOCAL} crescendo_python=/bin/false",
        "router3 ansible_host=127.0.7.9 ansible_port=9",
    ]
    network, nodes = (
        network_at(tmp_path, *machines, more="ports: {normal: 25721, inter-router: 25821}\n"),
        tmp_path / "n",
    )
    told: list[str] = []
    with pytest.raises(ConfigError) as failed:
        deploy(network, Access(), work, told.append, directory=str(nodes))
    assert re.search("router2: .*relay was not found .*crescendo_python=", str(failed.value))
    assert re.search("router3 cannot be reached: .*refused", str(failed.value))
    assert "router1: start router1" in told
    assert relays(nodes) == []
    assert list(nodes.iterdir()) == []


def test_what_ansible_cannot_deploy_is_refused_before_it_starts(tmp_path: Path, work: Path) -> None:
    (tmp_path / "brokers.yml").write_text("graph_type: line-mixed\nrouters: 2\nbrokers: 1\n")
    with pytest.raises(ConfigError, match="broker1 is a broker; Ansible deploys routers only"):
        deploy(generate(load_topology(tmp_path / "brokers.yml")), Access(), work, silent)
    (tmp_path / "here.yml").write_text("graph_type: line\nrouters: 2\n")
    with pytest.raises(ConfigError, match="names no hostfile"):
        deploy(generate(load_topology(tmp_path / "here.yml")), Access(), work, silent)
