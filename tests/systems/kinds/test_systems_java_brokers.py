"""Do the brokers on a JVM honour their settings, serve third-party clients, and leave nothing behind?

Each is started once, with an awkward password, directory, address and settings, and, except ActiveMQ, with TLS besides
the plain listeners: with `threads` that broker sometimes loses the first bytes of a TLS connection, so
test_systems_tls.py tests its TLS. The files and commands are tested without starting the brokers, in the test file of
each kind.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from proton import ConnectionException

from broker_traces import AWKWARD_PASSWORD, PASSWORD_MARK, get_json, listening_addresses, traces_of
from certified import OPTIONAL, REQUIRED, check_who_may_connect
from crescendo.load.engine.graceful_close import close_gracefully
from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of
from foreign_clients import send_amqp10, through_amqp091, through_amqp10, through_mqtt, through_stomp
from pumping import ready, receive_all, send_all
from secure_clients import tls_listeners

ADDRESS = "127.0.0.9"
BODIES = [f"message {number}" for number in range(20)]
CLASSIC_ORDERS = "org.apache.activemq:type=Broker,brokerName=crescendo,destinationType=Queue,destinationName=orders"
ARTEMIS_ORDERS = 'org.apache.activemq.artemis:broker=*,component=addresses,address="orders",*'


@dataclass(frozen=True)
class Case:
    """The differences between the three brokers."""

    kind: str
    release: str
    settings: dict[str, Any]
    tls: dict[str, str] | None
    topic: str
    secure: set[str]
    others: dict[str, Callable[[RunningInstance], list[str]]]
    """Protocol besides AMQP 1.0 -> the messages received through it."""
    orders: str
    """Where the management counts the messages in a queue that was created at the start."""
    depths: Callable[[Any], list[int]]
    """All counts in the management's answer."""
    readable: str
    """A path that needs the password."""
    forbidden: str | None = None
    """An operation that the read-only management refuses."""
    refusals: set[int] = field(default_factory=lambda: {401})


def _by_stomp(broker: RunningInstance) -> list[str]:
    return through_stomp(broker.endpoints["stomp"], "/queue/by-stomp", BODIES)


def _by_mqtt(broker: RunningInstance) -> list[str]:
    return through_mqtt(broker.endpoints["mqtt"], "by/mqtt", BODIES)


def _by_amqp091(broker: RunningInstance) -> list[str]:
    return through_amqp091(broker.endpoints["amqp091"], "orders", BODIES)


def _over_tls(protocol: str) -> Callable[[RunningInstance], list[str]]:
    """Through our own driver: no client for Python exists."""

    def through(broker: RunningInstance) -> list[str]:
        group = Group(address=f"queue://by-{protocol}", protocol=protocol, size=PayloadSize.fixed(40))
        url = broker.endpoints[f"{protocol}+ssl"]
        with (
            closing(ready(driver_of(protocol, "receiver")(url, group))) as receiver,
            closing(ready(driver_of(protocol, "sender")(url, group))) as sender,
        ):
            receiver.begin()
            send_all(sender, [body.ljust(40).encode() for body in BODIES], settled=False)
            received = [body.decode().rstrip() for body in receive_all(receiver, len(BODIES))]
            close_gracefully([receiver, sender])
        return received

    return through


CASES = [
    Case(
        "activemq",
        "org.apache.activemq:apache-activemq",
        {"threads": 4},
        None,
        "topic://news",  # the full name; a plain name would be a queue
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
        {"amqps", "stomp+ssl", "mqtts", "openwire+ssl", "core+ssl"},
        {"stomp": _by_stomp, "mqtt": _by_mqtt, "openwire+ssl": _over_tls("openwire"), "core+ssl": _over_tls("core")},
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
    settings["listen"] = ADDRESS
    directory = tmp_path_factory.mktemp(case.kind) / "an instance"  # with a space, as users' paths may have
    instance = start(kind, settings | case.settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


def test_a_queue_gives_each_message_to_one_receiver(broker: RunningInstance) -> None:
    assert through_amqp10(broker.endpoints["amqp"], "shared", BODIES, capability="queue") == [BODIES]
    shares = through_amqp10(broker.endpoints["amqp"], "shared", BODIES, receivers=2, capability="queue")
    assert sorted(shares[0] + shares[1]) == sorted(BODIES)


def test_a_topic_gives_each_message_to_every_receiver(broker: RunningInstance, case: Case) -> None:
    received = through_amqp10(broker.endpoints["amqp"], case.topic, BODIES, receivers=2, capability="topic")
    assert received == [BODIES, BODIES]


def test_clients_of_the_other_protocols_are_served(broker: RunningInstance, case: Case) -> None:
    assert {name: through(broker) for name, through in case.others.items()} == dict.fromkeys(case.others, BODIES)


def test_management_counts_the_messages_in_a_declared_queue(broker: RunningInstance, case: Case) -> None:
    before = case.depths(get_json(broker.endpoints["management"], case.orders)[1])
    assert before
    assert set(before) == {0}
    send_amqp10(broker.endpoints["amqp"], "orders", BODIES)
    assert len(BODIES) in case.depths(get_json(broker.endpoints["management"], case.orders)[1])


def test_clients_without_credentials_are_refused_and_management_is_read_only(
    broker: RunningInstance, case: Case
) -> None:
    with pytest.raises(ConnectionException):
        send_amqp10(f"amqp://{urlsplit(broker.endpoints['amqp']).netloc.rpartition('@')[2]}", "orders", ["x"])
    assert get_json(broker.endpoints["management"], case.readable)[0] == 200
    assert get_json(broker.endpoints["management"], case.readable, password="wrong")[0] in case.refusals
    if case.forbidden is not None:  # the management of Broker-J has no such limit
        assert get_json(broker.endpoints["management"], case.forbidden)[1]["status"] == 403


def test_only_clients_with_the_right_certificates_may_connect(
    broker: RunningInstance, case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if case.tls is None:
        assert tls_listeners(broker) == []
    else:
        check_who_may_connect(broker, case.tls, case.secure, tmp_path, caplog)


def test_it_listens_at_its_address_and_nowhere_else(broker: RunningInstance) -> None:
    addresses = listening_addresses(broker.pid)
    assert set(addresses) == set(broker.facts["ports"].values())
    assert set(addresses.values()) == {ADDRESS}
    assert {urlsplit(url).hostname for url in broker.endpoints.values()} == {ADDRESS}


def test_the_facts_name_the_release_and_no_secret(broker: RunningInstance, case: Case) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", broker.facts["sha256"])
    assert broker.facts["origin"] == f"maven {case.release}:{broker.facts['version']}"
    assert PASSWORD_MARK not in repr(broker.facts)
    assert PASSWORD_MARK not in (broker.directory / "logs" / f"{case.kind}.log").read_text(errors="replace")
    assert PASSWORD_MARK not in " ".join(psutil.Process(broker.pid).cmdline())


def test_a_stopped_broker_leaves_nothing(broker: RunningInstance) -> None:
    pid, directory = broker.pid, broker.directory
    broker.stop()
    assert traces_of(pid, directory) == []


@pytest.mark.soak  # three more starts; the installation of a test machine is usually in root's home
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change accounts")
def test_a_broker_whose_files_every_account_can_read_does_not_run_as_root(case: Case, reachable_dir: Path) -> None:
    kind = system_of(case.kind)
    home = shutil.copytree(kind.install(None, print).home, reachable_dir / f"{case.kind}-home")
    settings = {"password": AWKWARD_PASSWORD, "memory": "256MiB"}
    directory, logs = reachable_dir / case.kind, reachable_dir / f"{case.kind}-logs"
    instance = start(kind, settings, directory=directory, home=home, on_fork=die_with_parent(), keep_logs=logs)
    try:
        assert psutil.Process(instance.pid).uids().real == instance.facts["uid"] != 0
        assert through_amqp10(instance.endpoints["amqp"], "shared", BODIES, capability="queue") == [BODIES]
    finally:
        instance.stop()
    assert PASSWORD_MARK not in (logs / f"{case.kind}.log").read_text(errors="replace")
