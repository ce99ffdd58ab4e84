"""Networks whose machines are hosts of their own: real addresses, the ports of the file, and nothing is left."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from crescendo.lab.namespaces import why_not_permitted
from crescendo.model.errors import ConfigError
from crescendo.run.network_on_hosts import HostedNetwork, running_on_hosts
from crescendo.topology.topology_file import load_topology

pytestmark = [pytest.mark.skipif(bool(why_not_permitted()), reason="no hosts here"), pytest.mark.timeout(300)]

FEDERATIONS = Path(__file__).parents[2] / "experiments/federation/topologies"
PROBE = """
import json, sys
from crescendo.topology.route_probe import Route, probe_route
found = probe_route(Route(*sys.argv[1:]))
print(json.dumps([found.sent, found.lost, found.duplicated, found.reordered, found.is_faithful]))
"""


def _topology(folder: Path, **document: object) -> Path:
    path = folder / "network.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def _probed(hosted: HostedNetwork, first: str, last: str, address: str) -> list[int | bool]:
    """What a client on a host of the network finds that the way did to 200 messages."""
    urls = [hosted.running[name].endpoints["amqp"] for name in (first, last)]
    route = [first, urls[0], last, urls[1], address, address, address]
    done = hosted.hosts[last].launch([sys.executable, "-c", PROBE, *route], stdout=subprocess.PIPE)
    printed, _ = done.communicate(timeout=60)
    found: list[int | bool] = json.loads(printed)
    return found


def test_every_machine_has_an_address_and_all_ports_of_its_own(tmp_path: Path) -> None:
    path = _topology(tmp_path, graph_type="line", routers=3, router_program="relay", ports={"normal": 5672})
    with running_on_hosts(load_topology(path), tmp_path / "nodes") as hosted:
        urls = {name: urlsplit(node.endpoints["amqp"]) for name, node in hosted.running.items()}
        assert [(url.hostname, url.port) for url in urls.values()] == [
            ("10.77.0.2", 5672), ("10.77.0.3", 5673), ("10.77.0.4", 5674),
        ]  # fmt: skip
        assert _probed(hosted, "router1", "router3", "orders") == [200, 0, 0, 0, True]
        pids = [node.pid for node in hosted.running.values()]
        networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in ("self", *pids)}
        assert len(networks) == 4  # that of this machine, and one per host
    assert not any(map(psutil.pid_exists, pids))
    assert not list((tmp_path / "nodes").iterdir())


def test_a_node_that_does_not_start_is_named_and_the_hosts_are_removed(tmp_path: Path) -> None:
    bad = {
        "id": "bad",
        "type": "router",
        "program": "relay",
        "listener": [{"role": "normal", "port": 1}, {"role": "normal", "port": 1}],
    }
    nodes = [{"id": "good", "type": "router", "program": "relay"}, bad]
    path = _topology(tmp_path, nodes=nodes, links=[{"source": "good", "target": "bad"}])
    told: list[str] = []
    sentence = r"^node bad: relay could not be started: .*Address already in use"
    with (
        pytest.raises(ConfigError, match=sentence),
        running_on_hosts(load_topology(path), tmp_path / "nodes", told.append),
    ):
        pytest.fail("it came up")
    assert "starting good (relay) at 10.77.0.3" in told
    assert not list((tmp_path / "nodes").iterdir())
    assert not [each for each in psutil.Process().children(recursive=True) if str(tmp_path) in str(each.cmdline())]


def test_deploy_says_how_to_reach_the_hosts(tmp_path: Path) -> None:
    path = _topology(tmp_path, graph_type="line", routers=2, router_program="relay")
    command = [
        sys.executable,
        "-m",
        "crescendo.cli.main",
        "topology",
        "deploy",
        str(path),
        "--local",
        "--hosts",
        "--json",
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        urls = json.loads(process.stdout.readline())
        told = next(line for line in process.stderr if line.startswith("run clients in this network: "))
        way_in = shlex.split(told.removeprefix("run clients in this network: "))[:-1]
        probe = [*way_in, sys.executable, "-c", PROBE]
        route = ["router1", urls["router1"]["amqp"], "router2", urls["router2"]["amqp"], *["orders"] * 3]
        done = subprocess.run([*probe, *route], stdout=subprocess.PIPE, check=True, timeout=60)
        assert json.loads(done.stdout) == [200, 0, 0, 0, True]
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert not list(tmp_path.glob("crescendo-topology-*"))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["artemis-qpid-broker-j", "activemq-activemq", "artemis-router-rabbitmq"])
def test_brokers_join_each_other_over_the_network(name: str, tmp_path: Path) -> None:
    with running_on_hosts(load_topology(FEDERATIONS / f"{name}.yml"), tmp_path / "nodes") as hosted:
        called = "/amq/queue/perf" if hosted.network.graph.by_id()["last"].program == "rabbitmq" else "perf"
        urls = [hosted.running[name].endpoints["amqp"] for name in ("first", "last")]
        route = ["first", urls[0], "last", urls[1], "perf", "perf", called]
        done = hosted.hosts["last"].launch([sys.executable, "-c", PROBE, *route], stdout=subprocess.PIPE)
        printed, _ = done.communicate(timeout=60)
        assert json.loads(printed) == [200, 0, 0, 0, True]
