"""Who comes in through the TLS listeners of a system: foreign clients and our own, with all kinds of certificates."""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crescendo.client.amqp10 import Amqp10Client, pass_a_message
from crescendo.model.errors import PeerError
from crescendo.systems.instance import RunningInstance
from secure_clients import BODY, doors_of, passed, stranger, why_not

REQUIRED, OPTIONAL = {"client_certificates": "required"}, {"client_certificates": "optional"}


def check_who_comes_in(
    instance: RunningInstance, tls: Any, schemes: set[str], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who has the certificates comes in, and nobody else."""
    unknown_ca, unknown_key = stranger(directory)
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
        Amqp10Client(url.partition("?")[0] + f"?ca={unknown_ca}", 30.0)
    nameless = url.partition("&cert=")[0]
    if required:
        with pytest.raises(PeerError, match=r"(certificate required|bad certificate|handshake failure|closed)"):
            Amqp10Client(nameless, 30.0)
    else:
        Amqp10Client(nameless, 30.0).close()


def _keys_are_ours_alone(instance: RunningInstance) -> None:
    papers = sorted((instance.directory / "tls").iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in papers} == {0o600}
    # The authority's own key is nowhere, and none of the others is in what everybody may see.
    assert not list(instance.directory.rglob("ca.key"))
    assert "PRIVATE KEY" not in str(instance.facts)
