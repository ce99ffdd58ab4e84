"""Do all settings of Artemis reach its files and its command?"""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.kinds.artemis import ARTEMIS
from crescendo.systems.settings import settings_of

CORE = "{urn:activemq:core}"
PORTS = {"amqp": 7001, "stomp": 7002, "mqtt": 7003, "openwire": 7005, "core": 7006, "management": 7004}
SOMEWHERE = Installation("2.44.0", Path("/opt/artemis"), "given", java=Path("/opt/java"), java_version="17")


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


def test_only_requested_protocols_have_a_listener() -> None:
    acceptors = broker_xml(protocols=["stomp"]).findall(f".//{CORE}acceptor")
    assert [acceptor.get("name") for acceptor in acceptors] == ["stomp"]
    assert set(plan(protocols=["stomp"]).endpoints) == {"stomp", "management"}


def test_every_listener_is_on_the_loopback_interface() -> None:
    listeners = re.findall(r"(?:tcp|http)://([^/?\"]+:\d+)", "".join(plan().files.values()))
    assert sorted(listeners) == [f"127.0.0.1:{port}" for port in sorted(PORTS.values())]


def test_the_command_contains_no_secret() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"queues": ["a b"]}, "system.settings.queues"),
        ({"user": 'x" evil'}, "system.settings.user"),
        ({"password": "line\nbreak"}, "system.settings.password"),
        ({"memory": "1MiB"}, "system.settings.memory"),
        ({"protocols": ["amqp091"]}, "system.settings.protocols"),
    ],
)
def test_an_unsupported_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        plan(**settings)
