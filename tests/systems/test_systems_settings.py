"""Is every setting honoured or refused, with its name and the cure?"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.urls import parse_url
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.ref import ProcessRef
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.ports import choose_ports
from crescendo.systems.registry import SYSTEMS, system_of
from crescendo.systems.settings import settings_of


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "rabbitmq",
            {"usr": "x"},
            "system.settings.usr: rabbitmq has no such setting; did you mean 'user'? known: user",
        ),
        ("rabbitmq", {"threads": 0}, "system.settings.threads: 0 is out of range; write a number >= 1"),
        ("rabbitmq", {"memory": "much"}, "system.settings.memory: 'much' is not a size"),
        ("rabbitmq", {"queues": "perf"}, "system.settings.queues: 'perf' is not a list"),
        ("rabbitmq", {"queues": ["a", 5]}, "system.settings.queues[1]: 5 is not text"),
        (
            "rabbitmq",
            {"protocols": ["http"]},
            "system.settings.protocols: rabbitmq does not speak 'http'; it speaks amqp",
        ),
        ("rabbitmq", {"protocols": []}, "system.settings.protocols: name at least one of amqp, amqp091, stomp, mqtt"),
        ("rabbitmq", {"persistence": False}, "system.settings.persistence: in rabbitmq it is a property of each queue"),
        ("rabbitmq", {"user": ""}, "system.settings.user: rabbitmq refuses clients without a user name"),
        ("mosquitto", {"queues": ["q"]}, "system.settings.queues: mosquitto has topics only"),
        ("mosquitto", {"threads": 2}, "system.settings.threads: mosquitto runs on one thread"),
        ("mosquitto", {"user": "a:b"}, "system.settings.user: mosquitto needs a name without colons"),
        ("mosquitto", {"protocols": ["amqp"]}, "system.settings.protocols: mosquitto does not speak 'amqp'"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_before_anything_exists(
    tmp_path: Path, kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        start(system_of(kind), settings, directory=tmp_path / "it")
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("rabbitmq", {"version": "9.9"}, "rabbitmq: version 9.9 is not installed, "),
        ("mosquitto", {"version": "9.9"}, "mosquitto: version 9.9 is not installed, "),
        ("loopback", {"version": "9.9"}, "the loopback relay is part of Crescendo"),
        ("rabbitmq", {"home": Path("/")}, "/ is not a RabbitMQ home"),
        ("mosquitto", {"home": Path("/")}, "there is no program called mosquitto in /"),
        ("loopback", {"home": Path("/")}, "the loopback relay is part of Crescendo and has no home"),
    ],
)
def test_a_missing_installation_is_named(tmp_path: Path, kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        start(system_of(kind), {}, directory=tmp_path / "it", **options)
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


# -- ports -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])  # noqa: S104 - a listener on all interfaces takes the port here too
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    with socket.create_server((request.param, 0)) as listener:
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_the_cure(taken: int) -> None:
    with pytest.raises(ConfigError, match=f"port mqtt={taken}: another program has it .* give another"):
        choose_ports(("amqp", "mqtt"), {"mqtt": taken})


def test_a_port_that_the_kind_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"port amqqp=5: .* did you mean 'amqp'\? known: amqp, mqtt"):
        choose_ports(("amqp", "mqtt"), {"amqqp": 5})


@pytest.mark.parametrize("number", [0, 65_536, 10**9])
def test_an_invalid_port_number_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match="a port is a number from 1 to 65535"):
        choose_ports(("amqp",), {"amqp": number})


def test_one_port_is_not_given_twice() -> None:
    names = tuple(f"p{number}" for number in range(200))
    assert len(set(choose_ports(names, {}).values())) == 200
    port = choose_ports(("a",), {})["a"]
    with pytest.raises(ConfigError, match="another program has it"):
        choose_ports(("a", "b"), {"a": port, "b": port})


def test_free_ports_can_be_listened_on() -> None:
    for port in choose_ports(("a", "b", "c"), {}).values():
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"qpid-dispatch", "skupper-router", "relay", "mlmq"}))
def test_the_facts_contain_the_configuration_and_no_secret(name: str, tmp_path: Path) -> None:
    kind = system_of(name)
    given = {"user": "somebody", "password": "pa55-w0rd-of-this-test"}
    settings = settings_of(kind, given)
    installation = kind.install(None, lambda _: None)
    ports = {port: 1000 + index for index, port in enumerate(kind.ports)}
    blueprint = kind.plan(settings, installation, tmp_path, ports)
    instance = RunningInstance(kind, settings, installation, ports, tmp_path, blueprint, None)
    instance.processes += [ProcessRef(launch.name, 1, "then") for launch in blueprint.launches]
    shown = str(instance.facts)
    assert "pa55-w0rd-of-this-test" not in shown
    assert instance.facts["commands"]
    hidden = [text for path, text in blueprint.files.items() if path in blueprint.secrets]
    assert not any(line and line in shown for text in hidden for line in text.splitlines() if "somebody" in line)
    if name != "loopback":
        assert instance.facts["configuration"]


@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        ("loopback", "0.0.0.0", "not an IPv4 address of this machine"),  # noqa: S104
        ("loopback", "localhost", "not an IPv4 address of this machine"),
        ("mlmq", "127.0.0.2", "loopback interface only"),
    ],
)
def test_an_address_where_a_system_cannot_listen_is_refused(kind: str, address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"system\.settings\.listen: .*{message}"):
        settings_of(system_of(kind), {"listen": address})


@pytest.mark.parametrize("kind", ["loopback", "relay", "mosquitto"])
def test_a_system_listens_where_its_settings_say_and_nowhere_else(kind: str, tmp_path: Path) -> None:
    instance = start(
        system_of(kind), {"listen": "127.0.0.9"}, directory=tmp_path / "instance", on_fork=die_with_parent()
    )
    try:
        parts = parse_url(instance.url)
        assert parts.host == "127.0.0.9"
        socket.create_connection(("127.0.0.9", parts.port or 0), 10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", parts.port or 0), 10)
    finally:
        instance.stop()


def test_an_address_of_another_machine_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.7: nothing can listen there"):
        start(system_of("loopback"), {"listen": "192.0.2.7"}, directory=tmp_path / "instance")
