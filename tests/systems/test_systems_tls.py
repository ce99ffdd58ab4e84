"""Do systems with TLS let in whoever has the right certificates, as foreign clients see it, and nobody else?"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from secure_clients import BODY, doors_of, passed, stranger, why_not

from crescendo.client.amqp10 import Client, pass_a_message
from crescendo.model.errors import ConfigError, PeerError
from crescendo.run.processes import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

REQUIRED, OPTIONAL = {"client_certificates": "required"}, {"client_certificates": "optional"}


@contextmanager
def running(kind: str, directory: Path, tls: Any, **settings: Any) -> Iterator[RunningInstance]:
    instance = start(system_of(kind), {"tls": tls, **settings}, directory=directory, on_fork=die_with_parent())
    try:
        yield instance
    finally:
        instance.stop()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("kind", "tls", "schemes"),
    [
        ("mosquitto", True, {"mqtts"}),
        ("mosquitto", REQUIRED, {"mqtts"}),
        ("rabbitmq", OPTIONAL, {"amqps", "amqp091s", "stomp+ssl", "mqtts"}),
        ("activemq", REQUIRED, {"amqps", "stomp+ssl", "mqtts"}),
        ("artemis", OPTIONAL, {"amqps", "stomp+ssl", "mqtts"}),
        ("qpid-broker-j", REQUIRED, {"amqps", "amqp091s"}),
        ("loopback", REQUIRED, {"amqps"}),
    ],
)
def test_who_has_the_certificates_comes_in_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, tls: Any, schemes: set[str]
) -> None:
    unknown_ca, unknown_key = stranger(tmp_path)
    with running(kind, tmp_path / "a place" / "instance", tls) as instance:
        doors = {door.scheme: door for door in doors_of(instance)}
        assert set(doors) == schemes
        for door in doors.values():
            assert passed(door) == BODY
            caplog.clear()
            complaint = why_not(replace(door, ca=unknown_ca))
            assert complaint
            assert "verify failed" in complaint + caplog.text  # stomp.py says it in its log only
        door = next(iter(doors.values()))  # what clients must show is the same for all listeners
        assert bool(why_not(door.nameless)) == (tls == REQUIRED)
        assert bool(why_not(replace(door, certificate=unknown_ca, key=unknown_key))) == isinstance(tls, dict)
        if "amqps" in doors:
            _our_client_says_the_same(instance, unknown_ca, required=tls == REQUIRED)
        _keys_are_ours_alone(instance)


def _our_client_says_the_same(instance: RunningInstance, unknown_ca: Path, *, required: bool) -> None:
    url = instance.endpoints["amqps"]
    pass_a_message(url, "tls-proof", 30.0)
    with pytest.raises(PeerError, match="certificate verify failed: "):
        Client(url.partition("?")[0] + f"?ca={unknown_ca}", 30.0)
    nameless = url.partition("&cert=")[0]
    if required:
        with pytest.raises(PeerError, match=r"(certificate required|bad certificate|handshake failure|closed)"):
            Client(nameless, 30.0)
    else:
        Client(nameless, 30.0).close()


def _keys_are_ours_alone(instance: RunningInstance) -> None:
    papers = sorted((instance.directory / "tls").iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in papers} == {0o600}
    # The authority's own key is nowhere, and none of the others is in what everybody may see.
    assert not list(instance.directory.rglob("ca.key"))
    assert "PRIVATE KEY" not in str(instance.facts)


def test_plain_listeners_stay_and_the_endpoints_say_which_is_which(tmp_path: Path) -> None:
    with running("loopback", tmp_path / "it", True) as instance:
        assert set(instance.endpoints) == {"amqp", "amqps"}
        pass_a_message(instance.endpoints["amqp"], "plain", 30.0)
        plain = instance.endpoints["amqp"].rpartition(":")[2]
        with pytest.raises(PeerError, match=r"(does not speak TLS on this port|closed the connection)"):
            Client(f"amqps://127.0.0.1:{plain}?verify=no", 30.0)
    with running("loopback", tmp_path / "it", False) as instance:
        assert set(instance.endpoints) == {"amqp"}
        assert not (instance.directory / "tls").exists()


def test_certificates_that_a_person_gives_are_used(tmp_path: Path) -> None:
    certificate, key = stranger(tmp_path)  # signed by itself, so it is its own authority
    given = {"certificate": str(certificate), "key": str(key), "ca": str(certificate)}
    with running("mosquitto", tmp_path / "it", given) as instance:
        (door,) = doors_of(instance)
        assert door.ca.read_bytes() == certificate.read_bytes()
        assert passed(door) == BODY


def test_a_certificate_for_another_place_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    certificate, key = stranger(tmp_path, host="10.1.2.3")
    given = {"certificate": str(certificate), "key": str(key), "ca": str(certificate)}
    with pytest.raises(ConfigError, match=r"^system\.settings\.tls: certificate verify failed: IP address mismatch"):
        start(system_of("artemis"), {"tls": given}, directory=tmp_path / "it")
    assert not (tmp_path / "it").exists()


@pytest.mark.parametrize(
    ("kind", "tls", "words"),
    [
        ("rabbitmq", "yes", "system.settings.tls: Expected `bool | object`, got `str`"),
        ("rabbitmq", {"certificate": "c.pem"}, "system.settings.tls: certificate, key and ca go together"),
        ("rabbitmq", {"cert": "c.pem"}, "system.settings.tls: Object contains unknown field `cert`"),
        ("artemis", {"client_certificates": "maybe"}, "system.settings.tls.client_certificates: Invalid enum value"),
        (
            "rabbitmq",
            {"certificate": "c.pem", "key": "k.pem", "ca": "ca.pem", **REQUIRED},
            "system.settings.tls: with client_certificates the load needs one",
        ),
        (
            "mosquitto",
            {"certificate": "/nowhere/c.pem", "key": "k.pem", "ca": "ca.pem"},
            "system.settings.tls: cert: /nowhere/c.pem cannot be read: No such file",
        ),
        ("mosquitto", OPTIONAL, "system.settings.tls: mosquitto asks every client for a certificate or none"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_exists(tmp_path: Path, kind: str, tls: Any, words: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        start(system_of(kind), {"tls": tls}, directory=tmp_path / "it")
    assert str(mistake.value).startswith(words)
    assert list(tmp_path.iterdir()) == []
