"""How is the loopback relay configured?

The relay runs in its own process, so that it can be stopped, stalled and measured like any other system. It is part of
Crescendo, so there is nothing to install. It accepts every client on this machine unless a user is set.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from crescendo import __version__
from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import secure_schemes
from crescendo.systems import base
from crescendo.systems.base import AMQP, Blueprint, Installation, Launch
from crescendo.systems.settings import endpoint, refuse
from crescendo.systems.tls import CA, CERTIFICATE, KEY, secure_endpoints

_CREDENTIALS = "credentials.json"
_PROBE_TIMEOUT_S = 2.0


class LoopbackSettings(base.SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the relay: with user and password it refuses every other client."""

    user: str = ""
    persistence: bool = False

    def __post_init__(self) -> None:
        refuse(
            self,
            persistence="the loopback relay keeps messages in memory only; leave it out",
            memory="the loopback relay has a fixed queue limit; leave it out",
            threads="the loopback relay has one thread; leave it out",
            queues="the loopback relay creates a queue on first use; leave it out",
        )
        if bool(self.user) != (self.password is not None):
            raise ValueError("user: user and password go together; give both or none")


class Loopback:
    """The relay as a kind of system."""

    name = "loopback"
    summary = "an AMQP 1.0 relay in memory that needs nothing installed"
    settings = LoopbackSettings
    ports = (AMQP,)
    declares = ()

    def find(self, home: Path | None, version: str | None) -> Installation:
        if home is not None:
            raise ConfigError("the loopback relay is part of Crescendo and has no home; leave it out")
        if version not in {None, __version__}:
            raise ConfigError(
                f"the loopback relay is part of Crescendo {__version__}; version {version} is not available"
            )
        return Installation(__version__, Path(__file__).parent, f"crescendo {__version__}")

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        progress("the loopback relay is part of Crescendo")
        return self.find(None, version)

    def plan(
        self, settings: LoopbackSettings, _installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        argv = [sys.executable, "-m", "crescendo.systems.relay", "--host", settings.listen, "--port", str(ports[AMQP])]
        files = {}
        if settings.user:
            files[_CREDENTIALS] = json.dumps([settings.user, settings.password])
            argv += ["--credentials", str(directory / _CREDENTIALS)]
        if settings.secure is not None:
            argv += ["--tls-port", str(ports[secure_schemes()[AMQP]]), "--ca", str(directory / CA)]
            argv += ["--certificate", str(directory / CERTIFICATE), "--key", str(directory / KEY)]
            if settings.secure.client_certificates is not None:
                argv += ["--client-certificates", settings.secure.client_certificates]
        endpoints = {AMQP: endpoint(AMQP, settings, ports[AMQP]), **secure_endpoints(settings, directory, ports)}
        return Blueprint(files, (Launch(self.name, tuple(argv)),), endpoints, frozenset({_CREDENTIALS}))

    def probe(self, endpoints: Mapping[str, str], _settings: LoopbackSettings) -> None:
        pass_a_message(endpoints[AMQP], "crescendo-proof", _PROBE_TIMEOUT_S)


LOOPBACK = Loopback()
