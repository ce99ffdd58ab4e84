"""Do systems with TLS accept foreign clients with the right certificates, and no others?"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certified import OPTIONAL, REQUIRED, check_who_may_connect
from crescendo.client.amqp10 import Amqp10Client, pass_a_message
from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of
from secure_clients import BODY, pass_over_tls, self_signed, tls_listeners


@contextmanager
def running(kind: str, directory: Path, tls: Any, **settings: Any) -> Iterator[RunningInstance]:
    instance = start(system_of(kind), {"tls": tls, **settings}, directory=directory, on_fork=die_with_parent())
    try:
        yield instance
    finally:
        instance.stop()
    assert not directory.exists()


# The same check for Artemis and Broker-J is in test_systems_java_brokers.py, where they run anyway.
@pytest.mark.parametrize(
    ("kind", "tls", "schemes"),
    [
        ("mosquitto", True, {"mqtts"}),
        ("mosquitto", REQUIRED, {"mqtts"}),
        ("activemq", REQUIRED, {"amqps", "stomp+ssl", "mqtts", "openwire+ssl"}),
        ("loopback", REQUIRED, {"amqps"}),
    ],
)
def test_only_clients_with_the_right_certificates_may_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, tls: Any, schemes: set[str]
) -> None:
    with running(kind, tmp_path / "a place" / "instance", tls) as instance:
        check_who_may_connect(instance, tls, schemes, tmp_path, caplog)


def test_only_clients_with_the_right_certificates_may_connect_to_rabbitmq(
    secure_rabbitmq: RunningInstance, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schemes = {"amqps", "amqp091s", "stomp+ssl", "mqtts"}
    check_who_may_connect(secure_rabbitmq, OPTIONAL, schemes, tmp_path, caplog)


def test_plain_listeners_stay_and_endpoints_name_both(tmp_path: Path) -> None:
    with running("loopback", tmp_path / "it", True) as instance:
        assert set(instance.endpoints) == {"amqp", "amqps"}
        pass_a_message(instance.endpoints["amqp"], "plain", 30.0)
        plain = instance.endpoints["amqp"].rpartition(":")[2]
        with pytest.raises(PeerError, match=r"(does not speak TLS on this port|closed the connection)"):
            Amqp10Client(f"amqps://127.0.0.1:{plain}?verify=no", 30.0)
    with running("loopback", tmp_path / "it", False) as instance:
        assert set(instance.endpoints) == {"amqp"}
        assert not (instance.directory / "tls").exists()


def test_given_certificates_are_used(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)  # so it is its own authority
    given = {"certificate": str(certificate), "key": str(key), "ca": str(certificate)}
    with running("mosquitto", tmp_path / "it", given) as instance:
        (listener,) = tls_listeners(instance)
        assert listener.ca.read_bytes() == certificate.read_bytes()
        assert pass_over_tls(listener) == BODY


def test_a_certificate_for_another_host_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, host="10.1.2.3")
    given = {"certificate": str(certificate), "key": str(key), "ca": str(certificate)}
    with pytest.raises(ConfigError, match=r"^system\.settings\.tls: certificate verify failed: IP address mismatch"):
        start(system_of("artemis"), {"tls": given}, directory=tmp_path / "it")
    assert not (tmp_path / "it").exists()


@pytest.mark.parametrize(
    ("kind", "tls", "message"),
    [
        ("rabbitmq", "yes", "system.settings.tls: 'yes' is not true or false, or a mapping"),
        ("rabbitmq", {"certificate": "c.pem"}, "system.settings.tls: certificate, key and ca go together"),
        ("rabbitmq", {"cert": "c.pem"}, "system.settings.tls: unknown key 'cert'; known keys: certificate"),
        (
            "artemis",
            {"client_certificates": "maybe"},
            "system.settings.tls.client_certificates: 'maybe' is not",
        ),
        (
            "rabbitmq",
            {"certificate": "c.pem", "key": "k.pem", "ca": "ca.pem", **REQUIRED},
            "system.settings.tls: with client_certificates the load needs a certificate",
        ),
        (
            "mosquitto",
            {"certificate": "/nowhere/c.pem", "key": "k.pem", "ca": "ca.pem"},
            "system.settings.tls: cert: /nowhere/c.pem cannot be read: No such file",
        ),
        ("mosquitto", OPTIONAL, "system.settings.tls: mosquitto requires a certificate from every client or from none"),
    ],
)
def test_tls_settings_that_cannot_be_honoured_are_refused_before_anything_exists(
    tmp_path: Path, kind: str, tls: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        start(system_of(kind), {"tls": tls}, directory=tmp_path / "it")
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []
