"""Nodes on the machines of an inventory: real Ansible, relays and brokers, on addresses of the loopback network."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from crescendo.model.errors import ConfigError
from crescendo.topology.ansible_deployment import deploy, take_down
from crescendo.topology.generate import Network, generate
from crescendo.topology.graph import queue_address
from crescendo.topology.rendering.access import Access
from crescendo.topology.route_probe import Route, probe_route
from crescendo.topology.topology_file import load_topology
from networks import SAMPLES

LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable}"


def network_at(directory: Path, *machines: str, more: str = "") -> Network:
    (directory / "inventory").write_text("[routers]\n" + "\n".join(machines) + "\n")
    (directory / "line.yml").write_text(f"hostfile: inventory\ngraph_type: line\nrouter_program: relay\n{more}")
    return generate(load_topology(directory / "line.yml"))


def silent(_: str) -> None:
    pass


@pytest.fixture
def work(tmp_path: Path) -> Path:
    found = tmp_path / "work"
    found.mkdir(mode=0o700)
    return found


ACCESS = Access("deployed", "a-Secret.of-1")
PORTS = {"normal": 25731, "inter-router": 25741, "route-container": 25751, "openwire": 25761, "management": 25771}


def network_with_brokers(directory: Path, first: str, last: str | None) -> Network:
    """A broker, a relay behind it, and perhaps another broker behind that, each on a machine of its own."""
    nodes: list[dict[str, Any]] = [{"id": "broker1", "program": first}, {"id": "router1", "program": "relay"}]
    links: list[dict[str, Any]] = [{"source": "broker1", "target": "router1"}]
    if last is not None:
        nodes.append({"id": "broker2", "program": last})
        links.append({"source": "router1", "target": "broker2"})
    links = [{**link, "via": "autoLink", "addresses": ["orders"]} for link in links]
    places = {node["id"]: f"{node['id']} ansible_host=127.0.7.{at} {LOCAL}" for at, node in enumerate(nodes, 21)}
    groups = {kind: [line for name, line in places.items() if name.startswith(kind)] for kind in ("broker", "router")}
    (directory / "inventory").write_text("".join(f"[{kind}s]\n" + "\n".join(groups[kind]) + "\n" for kind in groups))
    document = {"hostfile": "inventory", "directed": True, "ports": PORTS, "nodes": nodes, "links": links}
    (directory / "network.yml").write_text(yaml.safe_dump(document))
    return generate(load_topology(directory / "network.yml"))


def url_of(network: Network, name: str) -> str:
    node = network.graph.by_id()[name]
    [port] = [each["port"] for each in network.variables[name]["listener"] if each.get("role", "normal") == "normal"]
    user = f"{ACCESS.user}:{ACCESS.password}@" if node.type == "broker" else ""
    return f"amqp://{user}{node.address}:{port}"


def kept(directory: Path) -> list[int]:
    """Every process that has to do with this directory."""
    return [
        process.pid for process in psutil.process_iter(["cmdline"]) if f"{directory}/" in str(process.info["cmdline"])
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("qpid-broker-j", None),
        pytest.param("artemis", "activemq", marks=pytest.mark.soak),
        pytest.param("activemq", "rabbitmq", marks=pytest.mark.soak),
    ],
)
def test_nodes_come_up_stay_as_they_are_and_leave_nothing(
    first: str, last: str | None, reachable_dir: Path, work: Path
) -> None:
    network, nodes = network_with_brokers(reachable_dir, first, last), reachable_dir / "nodes"
    try:
        done = deploy(network, ACCESS, work, silent, directory=str(nodes))
        assert {host: tasks[-1] for host, tasks in done.changed.items()} == {
            name: f"start {name}" for name in network.variables
        }
        started = kept(nodes)
        end = "router1" if last is None else "broker2"
        called = [queue_address(network.graph.by_id()[name].program, "orders") for name in ("broker1", end)]
        route = Route("broker1", url_of(network, "broker1"), end, url_of(network, end), "orders", *called)
        found = probe_route(route, 50)
        assert (found.sent, found.lost, found.duplicated, found.is_faithful) == (50, 0, 0, True)
        assert deploy(network, ACCESS, work, silent, directory=str(nodes)).changed == {}
        assert kept(nodes) == started
        assert not [pid for pid in started if ACCESS.password in str(psutil.Process(pid).cmdline())]
        files = [*nodes.glob("*/relay.json"), *nodes.glob("*/node.json")]
        assert len(files) == len(network.variables)
        assert {path.stat().st_mode & 0o077 for path in files} == {0}
        os.kill(int((nodes / "router1/pid").read_text()), signal.SIGKILL)
        take_down(network, work, silent, directory=str(nodes))
        assert kept(nodes) == []
    finally:
        for pid in kept(nodes):
            os.kill(pid, signal.SIGKILL)
    assert not nodes.exists()


def test_the_schema_of_the_machine_decides_which_attributes_a_router_has(tmp_path: Path, work: Path) -> None:
    """Nothing is started: what the schema refuses is found before the files are copied."""
    schema = tmp_path / "its" / "qdrouter.json"
    schema.parent.mkdir()
    document = json.loads((SAMPLES / "schema/qdrouter.json").read_text())
    document["entityTypes"]["listener"]["attributes"]["perMachine"] = {"type": "string", "create": True}
    schema.write_text(json.dumps(document))
    machine = f"router1 ansible_host=127.0.7.1 {LOCAL} crescendo_program=/bin/true crescendo_schema={schema}"
    (tmp_path / "inventory").write_text(f"[routers]\n{machine}\n")
    listener = {"role": "normal", "host": "127.0.7.1", "port": 25771, "perMachin": "yes"}
    node = {"id": "router1", "program": "qpid-dispatch", "listener": [listener]}
    (tmp_path / "one.yml").write_text(yaml.safe_dump({"hostfile": "inventory", "nodes": [node], "links": []}))
    network, told = generate(load_topology(tmp_path / "one.yml")), list[str]()
    with pytest.raises(ConfigError, match=r"node router1: .* has no attribute perMachin; did you mean perMachine"):
        deploy(network, Access(), work, told.append, directory=str(tmp_path / "nodes"))
    assert "router1: fetch the schema of router1" in told
    assert not (tmp_path / "nodes").exists()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_check_says_what_would_change_and_changes_nothing(tmp_path: Path, work: Path) -> None:
    network, nodes = network_at(tmp_path, f"router1 {LOCAL}", f"router2 {LOCAL}"), tmp_path / "nodes"
    would = deploy(network, Access(), work, silent, check=True, directory=str(nodes))
    assert set(would.changed) == {"router1", "router2"}
    assert not nodes.exists()


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
    assert kept(nodes) == []
    assert not nodes.exists()


def test_what_ansible_cannot_deploy_is_refused_before_it_starts(tmp_path: Path, work: Path) -> None:
    (tmp_path / "brokers.yml").write_text("graph_type: line-mixed\nrouters: 2\nbrokers: 1\n")
    with pytest.raises(ConfigError, match="the brokers need a user: give --user and --password-file"):
        deploy(generate(load_topology(tmp_path / "brokers.yml")), Access(), work, silent)
    (tmp_path / "here.yml").write_text("graph_type: line\nrouters: 2\n")
    with pytest.raises(ConfigError, match="names no hostfile"):
        deploy(generate(load_topology(tmp_path / "here.yml")), Access(), work, silent)
