"""Are the files of pairs and clusters what their nodes need: places that they share, and places that they do not?"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from crescendo.systems.base import Blueprint
from crescendo.systems.registry import system_of
from crescendo.systems.secret_forms import hide_secrets
from crescendo.systems.settings import settings_of

DIRECTORY = Path("/nowhere/never-made")
SECRET = "S3cret0f0A0Pair"
MODES = [
    ("artemis", {"failover": "replication"}),
    ("artemis", {"failover": "shared-store"}),
    ("activemq", {"failover": "shared-store"}),
    ("activemq", {"failover": "jdbc"}),
    ("rabbitmq", {"nodes": 3, "queues": ["orders"]}),
]


def planned(kind: str, settings: dict[str, Any], *, hidden: bool = False) -> Blueprint:
    known = system_of(kind)
    checked = settings_of(known, {**settings, "password": SECRET})
    ports = {name: 20_000 + at for at, name in enumerate((*known.ports, *checked.extra_ports))}
    return known.plan(hide_secrets(checked) if hidden else checked, known.find(None, None), DIRECTORY, ports)


def texts(blueprint: Blueprint, element: str) -> list[str]:
    """What the files of all nodes have between the tags of an element."""
    return [found for text in blueprint.files.values() for found in re.findall(rf"<{element}>(.*?)</{element}>", text)]


@pytest.mark.parametrize(("kind", "settings"), MODES)
def test_every_node_has_ports_of_its_own_and_no_secret_is_shown(kind: str, settings: dict[str, Any]) -> None:
    blueprint = planned(kind, settings)
    nodes = [launch.node for launch in blueprint.launches if launch.node]
    urls = [url for endpoints in (blueprint.endpoints, *blueprint.further_nodes) for url in endpoints.values()]
    assert nodes == list(settings_of(system_of(kind), settings).node_names)
    assert len(blueprint.further_nodes) == len(nodes) - 1
    assert len(set(urls)) == len(urls)
    assert blueprint.launches[blueprint.serving].node == "node1"
    shown = planned(kind, settings, hidden=True)
    assert SECRET not in str([text for path, text in shown.files.items() if path not in shown.secrets])
    assert SECRET not in str([launch.argv for launch in blueprint.launches])
    for path, text in blueprint.files.items():
        if path.endswith(".xml"):
            ElementTree.fromstring(text)  # noqa: S314 - our own


@pytest.mark.parametrize(("kind", "settings"), MODES)
def test_every_node_serves_at_the_address_that_was_asked_for(kind: str, settings: dict[str, Any]) -> None:
    blueprint = planned(kind, {**settings, "listen": "192.0.2.7"})
    urls = [url for endpoints in (blueprint.endpoints, *blueprint.further_nodes) for url in endpoints.values()]
    assert {urlsplit(url).hostname for url in urls} == {"192.0.2.7"}
    assert {launch.listens_at for launch in blueprint.launches if launch.node} == {"192.0.2.7"}
    if kind != "rabbitmq":  # in a cluster, nodes talk on the loopback interface
        assert "127.0.0.1" not in re.sub(r"jdbc:\S+", "", "".join(blueprint.files.values()))


def test_a_shared_store_is_one_place_and_a_replica_is_another() -> None:
    assert len(set(texts(planned("artemis", {"failover": "shared-store"}), "journal-directory"))) == 1
    assert len(set(texts(planned("artemis", {"failover": "replication"}), "journal-directory"))) == 2
    alone = planned("artemis", {})
    assert texts(alone, "journal-directory") == ["data/journal"]
    assert texts(alone, "ha-policy") == []
    stores = [
        found
        for text in planned("activemq", {"failover": "shared-store"}).files.values()
        for found in re.findall(r'<kahaDB directory="([^"]*)"', text)
    ]
    assert stores == [f"{DIRECTORY}/data/kahadb"] * 2


def test_protocols_that_would_declare_a_quorum_queue_call_it_by_another_name() -> None:
    blueprint = planned("rabbitmq", {"nodes": 3, "queues": ["orders"]})
    assert blueprint.called == {key: {"orders": "/amq/queue/orders"} for key in ("amqp", "stomp")}
    assert planned("rabbitmq", {"queues": ["orders"]}).called == {}
    members = re.findall(r"classic_config.nodes.\d = (.*)", blueprint.files["rabbitmq.conf"])
    assert len(set(members)) == 3
    assert '"queues": []' in blueprint.files["definitions.json"], "it is declared when all nodes are there"
