"""Does the loopback relay start, serve and leave nothing behind?"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of
from crescendo.wire.amqp10.handshake import Credentials
from relay_client import RelayClient


@pytest.mark.parametrize("password", ["simple", " two words ", "ü@:/%\n", ""])
def test_it_serves_at_its_url_with_its_password_and_stops(tmp_path: Path, password: str) -> None:
    settings = {"user": "a user", "password": password}
    system = start(system_of("loopback"), settings, directory=tmp_path / "relay", on_fork=die_with_parent())
    try:
        parts = urlsplit(system.url)
        assert parts.port is not None
        assert (unquote(parts.username or ""), unquote(parts.password or "")) == ("a user", password)
        RelayClient(parts.port, Credentials("a user", password)).die()
        with pytest.raises(PeerError):
            RelayClient(parts.port)
        pid = system.facts["pid"]
        assert psutil.pid_exists(pid)
        assert not password or password not in str(system.facts)
        command = " ".join(psutil.Process(pid).cmdline())
        assert not password.strip() or password.strip() not in command
    finally:
        system.stop()
        system.stop()  # safe to call twice
    assert not psutil.pid_exists(pid)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user": "x"}, "user and password go together"),
        ({"pasword": "x"}, "settings.pasword: loopback has no such setting; did you mean 'password'?"),
        ({"user": 5, "password": "x"}, "settings.user: 5 is not text"),
        ({"queues": ["q"]}, "settings.queues: the loopback relay creates a queue on first use"),
        ({"persistence": True}, "settings.persistence: the loopback relay keeps messages in memory only"),
        ({"protocols": ["mqtt"]}, "settings.protocols: loopback does not speak 'mqtt'; it speaks amqp"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=r"system\.settings") as error:
        start(system_of("loopback"), settings, directory=tmp_path / "relay")
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_system_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'artemiss'; did you mean 'artemis'\? known: .*loopback"):
        system_of("artemiss")
