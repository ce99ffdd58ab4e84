"""Does the router honour its settings, serve third-party clients, and leave nothing behind?

The tests of a running router run only where qdrouterd is installed, because not every distribution has it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_traces import listening_addresses, traces_of
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import Blueprint, Installation
from crescendo.systems.install.packages import find_command
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.qpid_dispatch import QPID_DISPATCH
from crescendo.systems.settings import settings_of
from foreign_clients import through_amqp10

SOMEWHERE = Installation("1.19.0", Path("/opt/sbin/qdrouterd"), "given")
BODIES = [f"message {number}" for number in range(20)]

needs_a_router = pytest.mark.skipif(find_command("qdrouterd") is None, reason="there is no qdrouterd on this machine")


def plan(**settings: Any) -> Blueprint:
    checked: Any = settings_of(QPID_DISPATCH, settings)
    return QPID_DISPATCH.plan(checked, SOMEWHERE, Path("/instances/one"), {"amqp": 7001})


def sections(**settings: Any) -> list[tuple[str, dict[str, str]]]:
    """The configuration in the format of its manual: a name, and attributes between braces."""
    text = plan(**settings).files["qdrouterd.conf"]
    return [
        (name, dict(re.findall(r"^\s*(\w+):\s*(\S+)$", body, re.MULTILINE)))
        for name, body in re.findall(r"^(\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    ]


def test_every_setting_reaches_the_router() -> None:
    config = sections(mode="interior", id="edge.1", threads=7, queues=["orders"], topics=["news"])
    assert ("router", {"mode": "interior", "id": "edge.1", "workerThreads": "7"}) in config
    addresses = [attributes for name, attributes in config if name == "address"]
    assert addresses == [
        {"prefix": "orders", "distribution": "balanced"},
        {"prefix": "news", "distribution": "multicast"},
    ]


def test_its_only_listener_is_on_the_loopback_interface() -> None:
    (listener,) = [attributes for name, attributes in sections() if name == "listener"]
    assert (listener["host"], listener["port"]) == ("127.0.0.1", "7001")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"user": "me"}, "system.settings.user"),
        ({"password": "secret"}, "system.settings.password"),
        ({"persistence": True}, "system.settings.persistence"),
        ({"memory": "1MiB"}, "system.settings.memory"),
        ({"queues": ["a\n}"]}, "system.settings.queues"),
        ({"queues": ["x"], "topics": ["x"]}, "system.settings.topics"),
        ({"protocols": ["mqtt"]}, "system.settings.protocols"),
    ],
)
def test_an_unsupported_setting_is_refused_by_name(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        plan(**settings)


def test_without_a_router_the_error_names_the_packages_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"qpid-dispatch-router .*EPEL 8.* build apache/qpid-dispatch"):
        QPID_DISPATCH.find(tmp_path, None)


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    settings = {"queues": ["orders"], "topics": ["news"], "threads": 2}
    directory = tmp_path_factory.mktemp("router") / "an instance"  # with a space, as users' paths may have
    instance = start(QPID_DISPATCH, settings, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


@needs_a_router
def test_a_balanced_address_gives_each_message_to_one_receiver(router: RunningInstance) -> None:
    assert through_amqp10(router.url, "orders", BODIES, capability="queue", presettled=True) == [BODIES]


@needs_a_router
def test_a_multicast_address_gives_each_message_to_every_receiver(router: RunningInstance) -> None:
    received = through_amqp10(router.url, "news", BODIES, receivers=2, capability="topic", presettled=True)
    assert received == [BODIES, BODIES]


@needs_a_router
def test_it_listens_on_the_loopback_interface_only(router: RunningInstance) -> None:
    assert listening_addresses(router.pid) == {router.facts["ports"]["amqp"]: "127.0.0.1"}


@needs_a_router
def test_a_stopped_router_leaves_nothing(router: RunningInstance) -> None:
    pid, directory = router.pid, router.directory
    router.stop()
    assert traces_of(pid, directory) == []
