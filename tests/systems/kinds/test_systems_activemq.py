"""Do all settings of ActiveMQ Classic reach its files and its command?"""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.kinds.activemq import ACTIVEMQ
from crescendo.systems.settings import settings_of

CORE = "{http://activemq.apache.org/schema/core}"
PORTS = {"amqp": 7001, "stomp": 7002, "mqtt": 7003, "management": 7004}
SOMEWHERE = Installation("5.18.3", Path("/opt/activemq"), "given", java=Path("/opt/java"), java_version="17")


def plan(**settings: Any) -> Blueprint:
    return ACTIVEMQ.plan(settings_of(ACTIVEMQ, settings), SOMEWHERE, Path("/instances/one"), PORTS)  # type: ignore[arg-type]


def broker_xml(**settings: Any) -> ElementTree.Element:
    document = ElementTree.fromstring(plan(**settings).files["conf/activemq.xml"])  # noqa: S314 - our own text
    broker = document.find(f"{CORE}broker")
    assert broker is not None
    return broker


def test_every_setting_reaches_the_broker() -> None:
    broker = broker_xml(persistence=False, threads=3, queues=["orders", "a/b.c"])
    assert broker.get("persistent") == "false"
    assert broker.find(f"{CORE}persistenceAdapter") is None
    assert [queue.get("physicalName") for queue in broker.iter(f"{CORE}queue")] == ["orders", "a/b.c"]
    assert all("+nio:" in connector.get("uri", "") for connector in broker.iter(f"{CORE}transportConnector"))
    assert any(option.endswith("SelectorManager.maximumPoolSize=3") for option in plan(threads=3).launches[0].argv)
    assert {"-Xms131072k", "-Xmx131072k"} <= set(plan(memory="128MiB").launches[0].argv)


def test_only_requested_protocols_have_a_listener() -> None:
    connectors = broker_xml(protocols=["stomp"]).iter(f"{CORE}transportConnector")
    assert [connector.get("uri") for connector in connectors] == ["stomp://127.0.0.1:7002"]
    assert set(plan(protocols=["stomp"]).endpoints) == {"stomp", "management"}


def test_the_command_contains_no_secret() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])
