"""Real brokers start from rendered files, and messages cross the links between them, as other clients see them.

In the suite, test_federations starts an Artemis, an ActiveMQ and a RabbitMQ from such files, with all of their links,
and test_ansible_deployment a Broker-J. Whole lines of rendered brokers, and what demand opens, are in soak.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import proton
import pytest
from proton.utils import BlockingConnection

from crescendo.client.amqp10 import Amqp10Client
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.ports import choose_ports
from crescendo.topology.generate import Network
from crescendo.topology.local_node import LocalNode
from networks import broker, link, network_of

PASSWORD = "rendered-Secret.1"


@contextlib.contextmanager
def _started(network: Network, names: list[str], folder: Path) -> Iterator[dict[str, RunningInstance]]:
    with contextlib.ExitStack() as running:
        found = {}
        for name in names:
            node = network.graph.by_id()[name]
            kind = LocalNode(network, node, "crescendo", PASSWORD)
            heap = {} if node.program == "rabbitmq" else {"memory": "192MiB"}
            settings = kind.own_settings() | heap
            found[name] = start(
                kind, settings, directory=folder / name, ports=kind.wanted_ports, on_fork=die_with_parent()
            )
            running.callback(found[name].stop)
        yield found


def _network(folder: Path, programs: dict[str, str], links: list[dict[str, Any]], *, directed: bool) -> Network:
    nodes = []
    for name, program in programs.items():
        roles = ["normal", "management"] + (["openwire"] if program == "activemq" else [])
        ports = choose_ports(roles, {})
        listeners = [{"host": "127.0.0.1", "role": role, "port": port} for role, port in ports.items()]
        nodes.append(broker(name, program=program, address="127.0.0.1", listener=listeners))
    return network_of(folder, {"nodes": nodes, "links": links, "directed": directed})


def _passes(first: RunningInstance, last: RunningInstance) -> list[str]:
    """What arrives at the last broker of five messages that were sent to the first."""
    client = Amqp10Client(last.endpoints["amqp"], 30)
    with contextlib.closing(client):
        send = _publish if first.facts["kind"] == "rabbitmq" else _send
        send(first.endpoints["amqp"])
        return [client.receive("orders", 30).decode() for _ in range(5)]


def _send(url: str) -> None:
    with contextlib.closing(BlockingConnection(url, timeout=30, allowed_mechs="PLAIN")) as connection:
        sender = connection.create_sender("orders")
        for number in range(5):
            sender.send(proton.Message(body=f"order {number}", durable=True))


def _publish(url: str) -> None:
    """Over AMQP 0-9-1, which the rendered listener serves on the same port."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for number in range(5):
            connection.channel().basic_publish("", "orders", f"order {number}".encode())


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_messages_cross_a_shovel_and_amqp_bridges(tmp_path: Path) -> None:
    """RabbitMQ, Artemis, Artemis and Broker-J in a line, all started from what was rendered for them."""
    programs = {"rabbit": "rabbitmq", "first": "artemis", "second": "artemis", "last": "qpid-broker-j"}
    links = [link(a, b, addresses=["orders"]) for a, b in zip(list(programs), list(programs)[1:], strict=False)]
    network = _network(tmp_path, programs, links, directed=True)
    with _started(network, list(reversed(programs)), tmp_path / "nodes") as running:
        bodies = _passes(running["rabbit"], running["last"])
        for name in running:
            assert PASSWORD not in str(running[name].facts)
    assert bodies == [f"order {number}" for number in range(5)]


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_messages_cross_a_network_connector(tmp_path: Path) -> None:
    options = {"networkTTL": 2, "excluded": ["queue://other"]}
    links = [link("one", "two", addresses=["orders"], options=options)]
    network = _network(tmp_path, dict.fromkeys(("one", "two"), "activemq"), links, directed=False)
    with _started(network, ["two", "one"], tmp_path / "nodes") as running:
        assert _passes(running["one"], running["two"]) == [f"order {number}" for number in range(5)]


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "via", "directed"),
    [("artemis", "federation", False), ("artemis", "cluster", False), ("rabbitmq", "federation", True)],
)
def test_messages_cross_what_demand_opens(tmp_path: Path, program: str, via: str, directed: bool) -> None:
    links = [link("one", "two", addresses=["orders"], via=via)]
    network = _network(tmp_path, dict.fromkeys(("one", "two"), program), links, directed=directed)
    with _started(network, ["two", "one"], tmp_path / "nodes") as running:
        assert _passes(running["one"], running["two"]) == [f"order {number}" for number in range(5)]
