"""Do all settings of Qpid Broker-J reach its files and its command?"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from crescendo.model.errors import ConfigError
from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.kinds.qpid_broker_j import QPID_BROKER_J
from crescendo.systems.settings import settings_of

PORTS = {"amqp": 7001, "amqp091": 7002, "management": 7003}
SOMEWHERE = Installation("9.2.1", Path("/opt/qpid"), "given", java=Path("/opt/java"), java_version="17")


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


def test_only_requested_protocols_have_a_listener() -> None:
    broker, _ = document(protocols=["amqp091"])
    assert [(port["port"], port["protocols"]) for port in broker["ports"]] == [(7002, ["AMQP_0_9_1"]), (7003, ["HTTP"])]
    assert set(plan(protocols=["amqp091"]).endpoints) == {"amqp091", "management"}


def test_every_listener_is_on_the_loopback_interface() -> None:
    assert {port["bindingAddress"] for port in document()[0]["ports"]} == {"127.0.0.1"}


def test_the_command_contains_no_secret() -> None:
    launch = plan(password="k33p-it").launches[0]
    assert "k33p-it" not in " ".join([*launch.argv, *launch.env.values()])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"store": "JDBC"}, "system.settings.store"),
        ({"store": "DERBY", "persistence": False}, "system.settings.store"),
        ({"threads": 1}, "system.settings.threads"),
        ({"topics": ["a|b"]}, "system.settings.topics"),
        ({"topics": ["x"], "queues": ["x"]}, "system.settings.topics"),
    ],
)
def test_an_unsupported_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        plan(**settings)
