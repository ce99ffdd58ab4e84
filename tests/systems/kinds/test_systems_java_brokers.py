"""Do the brokers on a JVM start as they were asked to, serve other people's clients, and leave nothing?

Each is started once, with a password, a directory and settings that are awkward, and, ActiveMQ apart, with TLS beside
the plain listeners: with `threads` that broker now and then loses the first bytes of a TLS connection, so its TLS is
asked for in test_systems_tls.py. What files and commands say is tested without starting them, in the file of each kind.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from proton import ConnectionException

from broker_traces import AWKWARD_PASSWORD, ask, listening_addresses, traces_of
from certified import OPTIONAL, REQUIRED, check_who_comes_in
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of
from foreign_clients import send_amqp10, through_amqp091, through_amqp10, through_mqtt, through_stomp
from secure_clients import doors_of

BODIES = [f"message {number}" for number in range(20)]
CLASSIC_ORDERS = "org.apache.activemq:type=Broker,brokerName=crescendo,destinationType=Queue,destinationName=orders"
ARTEMIS_ORDERS = 'org.apache.activemq.artemis:broker=*,component=addresses,address="orders",*'


@dataclass(frozen=True)
class Case:
    """In what the three differ."""

    kind: str
    release: str
    settings: dict[str, Any]
    tls: dict[str, str] | None
    topic: str
    secure: set[str]
    others: dict[str, Callable[[RunningInstance], list[str]]]
    """Protocol beside AMQP 1.0 -> what came back through it."""
    orders: str
    """Where the management counts the messages in a queue that was made beforehand."""
    depths: Callable[[Any], list[int]]
    """All counts in the management's answer."""
    welcome: str
    """What whoever knows the password may read."""
    writing: str | None = None
    """What nobody may do through a management that is there to watch."""
    refusals: set[int] = field(default_factory=lambda: {401})


def _by_stomp(broker: RunningInstance) -> list[str]:
    return through_stomp(broker.endpoints["stomp"], "/queue/by-stomp", BODIES)


def _by_mqtt(broker: RunningInstance) -> list[str]:
    return through_mqtt(broker.endpoints["mqtt"], "by/mqtt", BODIES)


def _by_amqp091(broker: RunningInstance) -> list[str]:
    return through_amqp091(broker.endpoints["amqp091"], "orders", BODIES)


CASES = [
    Case(
        "activemq",
        "org.apache.activemq:apache-activemq",
        {"threads": 4},
        None,
        "topic://news",  # by its full name, else it would be a queue
        set(),
        {"stomp": _by_stomp, "mqtt": _by_mqtt},
        f"/read/{CLASSIC_ORDERS}/QueueSize",
        lambda answer: [answer["value"]],
        "/version",
        "/exec/org.apache.activemq:type=Broker,brokerName=crescendo/addQueue/mine",
    ),
    Case(
        "artemis",
        "org.apache.activemq:apache-artemis",
        {"threads": 2},
        OPTIONAL,
        "news",
        {"amqps", "stomp+ssl", "mqtts"},
        {"stomp": _by_stomp, "mqtt": _by_mqtt},
        f"/read/{ARTEMIS_ORDERS}/MessageCount",
        lambda answer: [value["MessageCount"] for value in answer["value"].values() if "MessageCount" in value],
        "/version",
        '/exec/org.apache.activemq.artemis:broker="crescendo"/listConnections',
        refusals={401, 403},
    ),
    Case(
        "qpid-broker-j",
        "org.apache.qpid:apache-qpid-broker-j",
        {"threads": 2, "topics": ["news"]},
        REQUIRED,
        "news",
        {"amqps", "amqp091s"},
        {"amqp091": _by_amqp091},
        "/api/latest/queue/default/default/orders",
        lambda answer: [answer["statistics"]["queueDepthMessages"]],
        "/api/latest/broker",
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.kind)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def broker(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    kind = system_of(case.kind)
    kind.install(None, print)
    settings = {"password": AWKWARD_PASSWORD, "queues": ["orders"], "memory": "256MiB", "tls": case.tls or False}
    directory = tmp_path_factory.mktemp(case.kind) / "an instance"  # a space, which paths of people have too
    instance = start(kind, settings | case.settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def test_a_queue_gives_each_message_to_one_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "shared", BODIES, capability="queue") == [BODIES]
    shares = through_amqp10(broker.endpoints["amqp"], "shared", BODIES, receivers=2, capability="queue")
    assert sorted(shares[0] + shares[1]) == sorted(BODIES)


def test_a_topic_gives_each_message_to_every_receiver(broker: RunningInstance, case: Case) -> None:
    got = through_amqp10(broker.endpoints["amqp"], case.topic, BODIES, receivers=2, capability="topic")
    assert got == [BODIES, BODIES]


def test_clients_of_the_other_protocols_are_served(broker: RunningInstance, case: Case) -> None:
    assert {name: through(broker) for name, through in case.others.items()} == dict.fromkeys(case.others, BODIES)


def test_management_counts_what_lies_in_a_queue_made_beforehand(broker: RunningInstance, case: Case) -> None:
    before = case.depths(ask(broker.endpoints["management"], case.orders)[1])
    assert before
    assert set(before) == {0}
    send_amqp10(broker.endpoints["amqp"], "orders", BODIES)
    assert len(BODIES) in case.depths(ask(broker.endpoints["management"], case.orders)[1])


def test_strangers_are_turned_away_and_whoever_watches_can_only_read(broker: RunningInstance, case: Case) -> None:
    with pytest.raises(ConnectionException):
        send_amqp10(f"amqp://{urlsplit(broker.endpoints['amqp']).netloc.rpartition('@')[2]}", "orders", ["x"])
    assert ask(broker.endpoints["management"], case.welcome)[0] == 200
    assert ask(broker.endpoints["management"], case.welcome, password="wrong")[0] in case.refusals
    if case.writing is not None:  # the management of Broker-J knows no such limit
        assert ask(broker.endpoints["management"], case.writing)[1]["status"] == 403


def test_who_has_the_certificates_comes_in_and_nobody_else(
    broker: RunningInstance, case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if case.tls is None:
        assert doors_of(broker) == []
    else:
        check_who_comes_in(broker, case.tls, case.secure, tmp_path, caplog)


def test_the_kernel_sees_it_listen_on_the_loopback_interface_only(broker: RunningInstance) -> None:
    addresses = listening_addresses(broker.pid)
    assert set(addresses) == set(broker.facts["ports"].values())
    assert set(addresses.values()) == {"127.0.0.1"}


def test_the_facts_name_the_release_and_no_secret(broker: RunningInstance, case: Case) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", broker.facts["sha256"])
    assert broker.facts["origin"] == f"maven {case.release}:{broker.facts['version']}"
    assert AWKWARD_PASSWORD not in repr(broker.facts)


def test_stopped_it_leaves_nothing(broker: RunningInstance) -> None:
    pid, directory = broker.pid, broker.directory
    broker.stop()
    assert traces_of(pid, directory) == []
