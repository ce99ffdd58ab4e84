"""Does Qpid Broker-J start as it was asked to, serve other people's clients, and leave nothing?"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from broker_traces import AWKWARD_PASSWORD, ask, listening_addresses, traces_of
from foreign_clients import send_amqp10, through_amqp091, through_amqp10
from proton import ConnectionException

from crescendo.model.errors import ConfigError
from crescendo.run.processes import die_with_parent
from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.qpid_broker_j import QPID_BROKER_J
from crescendo.systems.settings import settings_of

PORTS = {"amqp": 7001, "amqp091": 7002, "management": 7003}
SOMEWHERE = Installation("9.2.1", Path("/opt/qpid"), "given", java=Path("/opt/java"), java_version="17")
BODIES = [f"message {number}" for number in range(20)]


def plan(**settings: Any) -> Blueprint:
    checked: Any = settings_of(QPID_BROKER_J, settings)
    return QPID_BROKER_J.plan(checked, SOMEWHERE, Path("/instances/one"), PORTS)


def document(**settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The broker, and the virtual host in it."""
    broker = json.loads(plan(**settings).files["broker.json"])
    return broker, json.loads(broker["virtualhostnodes"][0]["virtualHostInitialConfiguration"])


def test_every_setting_reaches_the_broker() -> None:
    broker, host = document(persistence=False, threads=3, queues=["orders", "a/b.c"])
    assert host["type"] == "Memory"
    assert host["connectionThreadPoolSize"] == 3
    assert {port["threadPoolSize"] for port in broker["ports"] if port["type"] == "AMQP"} == {3}
    assert [queue["name"] for queue in host["queues"]] == ["orders", "a/b.c"]
    assert [exchange["name"] for exchange in document(topics=["news"])[1]["exchanges"]] == ["news"]
    assert document()[1]["type"] == "BDB"
    assert document(store="DERBY")[1]["type"] == "DERBY"
    assert {"-Xms131072k", "-Xmx131072k"} <= set(plan(memory="128MiB").launches[0].argv)


def test_only_the_protocols_that_were_asked_for_have_a_listener() -> None:
    broker, _ = document(protocols=["amqp091"])
    assert [(port["port"], port["protocols"]) for port in broker["ports"]] == [(7002, ["AMQP_0_9_1"]), (7003, ["HTTP"])]
    assert set(plan(protocols=["amqp091"]).endpoints) == {"amqp091", "management"}


def test_whatever_listens_listens_on_the_loopback_interface() -> None:
    assert {port["bindingAddress"] for port in document()[0]["ports"]} == {"127.0.0.1"}


def test_no_secret_is_a_word_of_the_command() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"store": "JDBC"}, "system.settings.store"),
        ({"store": "DERBY", "persistence": False}, "system.settings.store"),
        ({"threads": 1}, "system.settings.threads"),
        ({"topics": ["a|b"]}, "system.settings.topics"),
        ({"topics": ["x"], "queues": ["x"]}, "system.settings.topics"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        plan(**settings)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    QPID_BROKER_J.install(None, print)
    settings = {
        "password": AWKWARD_PASSWORD,
        "queues": ["orders"],
        "topics": ["news"],
        "threads": 2,
        "memory": "256MiB",
    }
    directory = tmp_path_factory.mktemp("qpid-broker-j") / "an instance"  # a space, which paths of people have too
    instance = start(QPID_BROKER_J, settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def test_a_queue_gives_each_message_to_one_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "shared", BODIES, capability="queue") == [BODIES]
    shares = through_amqp10(broker.endpoints["amqp"], "shared", BODIES, receivers=2, capability="queue")
    assert sorted(shares[0] + shares[1]) == sorted(BODIES)


def test_a_topic_gives_each_message_to_every_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "news", BODIES, receivers=2, capability="topic") == [BODIES, BODIES]


def test_the_older_amqp_is_served_too(broker: RunningInstance) -> None:
    assert through_amqp091(broker.endpoints["amqp091"], "orders", BODIES) == BODIES


def test_management_counts_what_lies_in_a_queue_made_beforehand(broker: RunningInstance) -> None:
    send_amqp10(broker.endpoints["amqp"], "orders", BODIES)
    _, queue = ask(broker.endpoints["management"], "/api/latest/queue/default/default/orders")
    assert queue["statistics"]["queueDepthMessages"] == len(BODIES)


def test_strangers_are_turned_away(broker: RunningInstance) -> None:
    with pytest.raises(ConnectionException):
        send_amqp10(f"amqp://{urlsplit(broker.endpoints['amqp']).netloc.rpartition('@')[2]}", "orders", ["x"])
    assert ask(broker.endpoints["management"], "/api/latest/broker", password="wrong")[0] == 401


def test_the_kernel_sees_it_listen_on_the_loopback_interface_only(broker: RunningInstance) -> None:
    addresses = listening_addresses(broker.pid)
    assert set(addresses) == set(broker.facts["ports"].values())
    assert set(addresses.values()) == {"127.0.0.1"}


def test_the_facts_name_the_release_and_no_secret(broker: RunningInstance) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", broker.facts["sha256"])
    assert broker.facts["origin"] == f"maven org.apache.qpid:apache-qpid-broker-j:{broker.facts['version']}"
    assert AWKWARD_PASSWORD not in repr(broker.facts)


def test_stopped_it_leaves_nothing(broker: RunningInstance) -> None:
    pid, directory = broker.pid, broker.directory
    broker.stop()
    assert traces_of(pid, directory) == []
