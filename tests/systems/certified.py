"""Which clients may connect to the TLS listeners of a system: foreign ones and our own, with various certificates."""

import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crescendo.client.amqp10 import Amqp10Client, pass_a_message
from crescendo.load.protocols.registry import driver_of
from crescendo.model.errors import PeerError
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import ready, receive_all, send_all
from secure_clients import BODY, pass_over_tls, refusal, self_signed, tls_listeners

REQUIRED, OPTIONAL = {"client_certificates": "required"}, {"client_certificates": "optional"}


def check_who_may_connect(
    instance: RunningInstance, tls: Any, schemes: set[str], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients with the right certificates may connect, and no others."""
    unknown_ca, unknown_key = self_signed(directory)
    listeners = {listener.scheme: listener for listener in tls_listeners(instance)}
    assert set(listeners) == schemes
    for listener in listeners.values():
        assert pass_over_tls(listener) == BODY
        caplog.clear()
        reason = refusal(replace(listener, ca=unknown_ca))
        assert reason
        assert "verify failed" in reason + caplog.text  # stomp.py only logs it
    listener = next(iter(listeners.values()))  # all listeners require the same of their clients
    assert bool(refusal(listener.without_certificate)) == (tls == REQUIRED)
    assert bool(refusal(replace(listener, certificate=unknown_ca, key=unknown_key))) == isinstance(tls, dict)
    if "amqps" in listeners:
        _check_our_client(instance, unknown_ca, required=tls == REQUIRED)
    for protocol in ("openwire", "core"):
        if f"{protocol}+ssl" in listeners:
            _check_our_channels(protocol, instance.endpoints[f"{protocol}+ssl"])
    _check_key_files(instance)


def _check_our_client(instance: RunningInstance, unknown_ca: Path, *, required: bool) -> None:
    url = instance.endpoints["amqps"]
    pass_a_message(url, "tls-proof", 30.0)
    with pytest.raises(PeerError, match="certificate verify failed: "):
        Amqp10Client(url.partition("?")[0] + f"?ca={unknown_ca}", 30.0)
    without_certificate = url.partition("&cert=")[0]
    if required:
        with pytest.raises(PeerError, match=r"(certificate required|bad certificate|handshake failure|closed)"):
            Amqp10Client(without_certificate, 30.0)
    else:
        Amqp10Client(without_certificate, 30.0).close()


def _check_our_channels(protocol: str, url: str) -> None:
    """No foreign client passes a message over these protocols here, so our channels do."""
    group = Group(address=f"queue://tls-{protocol}", protocol=protocol, size=PayloadSize.fixed(64))
    bodies = [bytes((number,)) * 64 for number in range(200)]
    with (
        closing(ready(driver_of(protocol, "receiver")(url, group))) as receiver,
        closing(driver_of(protocol, "sender")(url, group)) as sender,
    ):
        receiver.begin()
        send_all(sender, bodies, settled=False)
        assert receive_all(receiver, len(bodies)) == bodies


def _check_key_files(instance: RunningInstance) -> None:
    files = sorted((instance.directory / "tls").iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    # The authority's own key is not on disk, and no other key is in the public facts.
    assert not list(instance.directory.rglob("ca.key"))
    assert "PRIVATE KEY" not in str(instance.facts)
