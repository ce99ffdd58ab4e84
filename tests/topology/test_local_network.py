"""Whole networks on this machine: they come up, carry messages, and leave nothing behind."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from crescendo.client.amqp10 import Amqp10Client
from crescendo.model.errors import ConfigError
from crescendo.net.sockets import listen
from crescendo.systems.install.packages import find_command
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.rendering.routers import PROGRAMS
from networks import link, router, topology_of, write_topology


def _where_found(program: str) -> object:
    """A router that no package registry has runs from rendered files where somebody installed it."""
    command = PROGRAMS[program][0]
    return pytest.param(program, marks=pytest.mark.skipif(find_command(command) is None, reason=f"no {command} here"))


@pytest.mark.parametrize("program", ["relay", _where_found("qpid-dispatch"), _where_found("skupper-router")])
def test_a_line_of_three_routers_comes_up_and_carries_messages(program: str, tmp_path: Path) -> None:
    network = local_network(topology_of(tmp_path, {"graph_type": "line", "routers": 3, "router_program": program}))
    nodes = tmp_path / "nodes"
    with running_network(network, nodes) as running:
        pids = [instance.pid for instance in running.values()]
        receiver, sender = (Amqp10Client(running[name].endpoints["amqp"]) for name in ("router3", "router1"))
        with closing(sender), closing(receiver), ThreadPoolExecutor(1) as pool:
            arrived = pool.submit(receiver.receive, "orders", 20)
            sender.send("orders", b"over three routers")  # returns when the receiver has accepted it
            assert arrived.result() == b"over three routers"
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert list(nodes.iterdir()) == []


def test_a_node_that_does_not_start_is_named_and_the_others_are_stopped(tmp_path: Path) -> None:
    nodes = [router("good", program="relay"), router("bad", program="relay", listener=[{"role": "normal", "port": 1}])]
    network = local_network(topology_of(tmp_path, {"nodes": nodes, "links": [link("good", "bad")]}))
    network.variables["bad"]["listener"].append(dict(network.variables["good"]["listener"][0]))  # a port that is taken
    expected = pytest.raises(
        ConfigError, match=r"^node (good|bad): relay could not be started: .*Address already in use"
    )
    with expected, running_network(network, tmp_path / "nodes"):
        pytest.fail("it came up")
    assert not list((tmp_path / "nodes").iterdir())


@pytest.mark.parametrize(
    ("found", "program"),
    [
        (["qdrouterd", "skrouterd"], "qpid-dispatch"),
        (["skrouterd"], "skupper-router"),
        ([], "relay"),
    ],
)
def test_a_real_router_is_the_first_choice(
    found: list[str], program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in found:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    network = local_network(topology_of(tmp_path, {"graph_type": "line", "routers": 2}))
    assert {node.program for node in network.graph.nodes} == {program}


def test_a_program_that_is_not_there_is_named_with_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = local_network(
        topology_of(tmp_path, {"graph_type": "line", "routers": 2, "router_program": "skupper-router"})
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ConfigError, match=r"^node router1: there is no skrouterd on the PATH"),
        running_network(network, tmp_path / "nodes"),
    ):
        pytest.fail("it came up")


def test_a_link_that_does_not_come_up_is_named_and_all_nodes_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crescendo.topology.local_network.LINKS_TIMEOUT_S", 3.0)
    network = local_network(topology_of(tmp_path, {"graph_type": "line", "routers": 2, "router_program": "relay"}))
    [connector] = [entry for values in network.variables.values() for entry in values.get("connector", ())]
    with closing(listen()) as closed:
        connector["port"] = closed.getsockname()[1]  # nobody listens there any more
    sentence = rf"^node router1: it did not connect to 127\.0\.0\.1:{connector['port']} \(Connection refused\) within"
    with pytest.raises(ConfigError, match=sentence), running_network(network, tmp_path / "nodes"):
        pytest.fail("it came up")
    assert not list((tmp_path / "nodes").iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_node_outlives_deploy(number: int, code: int, tmp_path: Path) -> None:
    path = write_topology(tmp_path, {"graph_type": "line", "routers": 2, "router_program": "relay"})
    command = [sys.executable, "-m", "crescendo.cli.main", "topology", "deploy", str(path), "--local", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())
        assert set(urls) == {"router1", "router2"}
        nodes = psutil.Process(process.pid).children(recursive=True)
        assert len(nodes) >= 2
        process.send_signal(number)
        assert process.wait(30) == code
    assert psutil.wait_procs(nodes, timeout=10)[1] == []
    assert code or not list(tmp_path.glob("crescendo-topology-*"))
