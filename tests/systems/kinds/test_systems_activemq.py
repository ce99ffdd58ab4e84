"""Do all settings of ActiveMQ Classic reach its files and its command?"""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.install.maven import ASSEMBLED
from crescendo.systems.kinds.activemq import ACTIVEMQ
from crescendo.systems.settings import settings_of

CORE = "{http://activemq.apache.org/schema/core}"
PORTS = {"amqp": 7001, "stomp": 7002, "mqtt": 7003, "openwire": 7005, "openwire+ssl": 7006, "management": 7004}
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
    assert all("nio:" in connector.get("uri", "") for connector in broker.iter(f"{CORE}transportConnector"))
    assert any(option.endswith("SelectorManager.maximumPoolSize=3") for option in plan(threads=3).launches[0].argv)
    assert {"-Xms131072k", "-Xmx131072k"} <= set(plan(memory="128MiB").launches[0].argv)


def test_only_requested_protocols_have_a_listener() -> None:
    connectors = broker_xml(protocols=["stomp"]).iter(f"{CORE}transportConnector")
    assert [connector.get("uri") for connector in connectors] == ["stomp://127.0.0.1:7002"]
    assert set(plan(protocols=["stomp"]).endpoints) == {"stomp", "management"}


def test_its_own_protocol_has_the_schemes_of_plain_transports() -> None:
    def uris(**settings: Any) -> list[str]:
        connectors = broker_xml(protocols=["openwire"], **settings).iter(f"{CORE}transportConnector")
        return [connector.get("uri", "").partition("?")[0] for connector in connectors]

    assert uris() == ["tcp://127.0.0.1:7005"]
    assert uris(threads=2) == ["nio://127.0.0.1:7005"]
    assert uris(tls=True) == ["tcp://127.0.0.1:7005", "ssl://127.0.0.1:7006"]


def test_the_command_contains_no_secret() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])


def test_a_version_that_is_assembled_from_jars_has_jolokia_as_an_agent() -> None:
    home = Installation("6.1.7", Path("/opt/six"), f"{ASSEMBLED} jars", java=Path("/opt/java"), java_version="17")
    settings = settings_of(ACTIVEMQ, {"user": "me", "password": "se:cret"})
    blueprint = ACTIVEMQ.plan(settings, home, Path("/instances/one"), PORTS)  # type: ignore[arg-type]
    argv = blueprint.launches[0].argv
    assert not any("se:cret" in argument for argument in argv)
    assert any(argument.startswith("-javaagent:/opt/six/lib/jolokia-agent") for argument in argv)
    assert argv[-5:-3] == ("-classpath", "/opt/six/lib/*")
    agent = blueprint.files["conf/jolokia-agent.properties"]
    assert "host = 127.0.0.1\nport = 7004\n" in agent
    assert "password = se\\:cret\n" in agent
    assert "conf/jolokia-agent.properties" in blueprint.secrets
    assert "jetty" not in blueprint.files["conf/activemq.xml"]
    assert blueprint.endpoints["management"] == plan(user="me", password="se:cret").endpoints["management"]
