"""Does Artemis start as it was asked to, serve other people's clients, and leave nothing?"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from broker_traces import AWKWARD_PASSWORD, ask, listening_addresses, traces_of
from foreign_clients import send_amqp10, through_amqp10, through_mqtt, through_stomp
from proton import ConnectionException

from crescendo.model.errors import ConfigError
from crescendo.run.processes import die_with_parent
from crescendo.systems.artemis import ARTEMIS
from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.settings import settings_of

CORE = "{urn:activemq:core}"
PORTS = {"amqp": 7001, "stomp": 7002, "mqtt": 7003, "management": 7004}
SOMEWHERE = Installation("2.44.0", Path("/opt/artemis"), "given", java=Path("/opt/java"), java_version="17")
BODIES = [f"message {number}" for number in range(20)]


def plan(**settings: Any) -> Blueprint:
    return ARTEMIS.plan(settings_of(ARTEMIS, settings), SOMEWHERE, Path("/instances/one"), PORTS)  # type: ignore[arg-type]


def broker_xml(**settings: Any) -> ElementTree.Element:
    return ElementTree.fromstring(plan(**settings).files["etc/broker.xml"])  # noqa: S314 - our own text


def test_every_setting_reaches_the_broker() -> None:
    core = broker_xml(persistence=False, threads=3, queues=["orders", "a/b.c"])
    assert core.findtext(f".//{CORE}persistence-enabled") == "false"
    assert all("remotingThreads=3" in (acceptor.text or "") for acceptor in core.iter(f"{CORE}acceptor"))
    queues = [queue.get("name") for queue in core.findall(f".//{CORE}anycast/{CORE}queue")]
    assert queues == ["DLQ", "ExpiryQueue", "orders", "a/b.c"]
    assert {"-Xms131072k", "-Xmx131072k"} <= set(plan(memory="128MiB").launches[0].argv)


def test_only_the_protocols_that_were_asked_for_have_a_listener() -> None:
    acceptors = broker_xml(protocols=["stomp"]).findall(f".//{CORE}acceptor")
    assert [acceptor.get("name") for acceptor in acceptors] == ["stomp"]
    assert set(plan(protocols=["stomp"]).endpoints) == {"stomp", "management"}


def test_whatever_listens_listens_on_the_loopback_interface() -> None:
    listeners = re.findall(r"(?:tcp|http)://([^/?\"]+:\d+)", "".join(plan().files.values()))
    assert sorted(listeners) == [f"127.0.0.1:{port}" for port in sorted(PORTS.values())]


def test_no_secret_is_a_word_of_the_command() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"queues": ["a b"]}, "system.settings.queues"),
        ({"user": 'x" evil'}, "system.settings.user"),
        ({"password": "line\nbreak"}, "system.settings.password"),
        ({"memory": "1MiB"}, "system.settings.memory"),
        ({"protocols": ["amqp091"]}, "system.settings.protocols"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        plan(**settings)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    ARTEMIS.install(None, print)
    settings = {"password": AWKWARD_PASSWORD, "queues": ["orders"], "threads": 2, "memory": "256MiB"}
    directory = tmp_path_factory.mktemp("artemis") / "an instance"  # a space, which paths of people have too
    instance = start(ARTEMIS, settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def test_a_queue_gives_each_message_to_one_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "shared", BODIES, capability="queue") == [BODIES]
    shares = through_amqp10(broker.endpoints["amqp"], "shared", BODIES, receivers=2, capability="queue")
    assert sorted(shares[0] + shares[1]) == sorted(BODIES)


def test_a_topic_gives_each_message_to_every_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "news", BODIES, receivers=2, capability="topic") == [BODIES, BODIES]


def test_stomp_and_mqtt_clients_are_served(broker: RunningInstance) -> None:
    assert through_stomp(broker.endpoints["stomp"], "/queue/by-stomp", BODIES) == BODIES
    assert through_mqtt(broker.endpoints["mqtt"], "by/mqtt", BODIES) == BODIES


def test_management_counts_what_lies_in_a_queue_made_beforehand(broker: RunningInstance) -> None:
    send_amqp10(broker.endpoints["amqp"], "orders", BODIES)
    pattern = '/read/org.apache.activemq.artemis:broker=*,component=addresses,address="orders",*/MessageCount'
    _, answer = ask(broker.endpoints["management"], pattern)
    assert len(BODIES) in [value.get("MessageCount") for value in answer["value"].values()]


def test_strangers_are_turned_away(broker: RunningInstance) -> None:
    with pytest.raises(ConnectionException):
        send_amqp10(f"amqp://{urlsplit(broker.endpoints['amqp']).netloc.rpartition('@')[2]}", "orders", ["x"])
    assert ask(broker.endpoints["management"], "/version", password="wrong")[0] in {401, 403}


def test_whoever_watches_can_only_read(broker: RunningInstance) -> None:
    path = '/exec/org.apache.activemq.artemis:broker="crescendo"/listConnections'
    _, answer = ask(broker.endpoints["management"], path)
    assert answer["status"] == 403


def test_the_kernel_sees_it_listen_on_the_loopback_interface_only(broker: RunningInstance) -> None:
    addresses = listening_addresses(broker.pid)
    assert set(addresses) == set(broker.facts["ports"].values())
    assert set(addresses.values()) == {"127.0.0.1"}


def test_the_facts_name_the_release_and_no_secret(broker: RunningInstance) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", broker.facts["sha256"])
    assert broker.facts["origin"] == f"maven org.apache.activemq:apache-artemis:{broker.facts['version']}"
    assert AWKWARD_PASSWORD not in repr(broker.facts)


def test_stopped_it_leaves_nothing(broker: RunningInstance) -> None:
    pid, directory = broker.pid, broker.directory
    broker.stop()
    assert traces_of(pid, directory) == []
