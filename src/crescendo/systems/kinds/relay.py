"""How is the relay started as a router?

From one configuration file with the sections of a router: listeners, connectors with costs, addresses. Part of
Crescendo, so there is nothing to install. It is a stand-in: where qdrouterd or skrouterd can be found, measure those.
Alone it is a router without neighbours; networks of them come from `crescendo topology`.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from crescendo import __version__
from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import ConfigError
from crescendo.systems import base
from crescendo.systems.base import AMQP, MANAGEMENT, Blueprint, Installation, Launch
from crescendo.systems.settings import endpoint, refuse

CONFIGURATION = "relay.json"
HOPS_FILE = "data/hops"
_PROBE_ADDRESS, _PROBE_TIMEOUT_S = "crescendo.proof", 5.0


class RelaySettings(base.SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the relay as a router: `queues` are balanced addresses."""

    user: str = ""
    persistence: bool = False
    id: str = "crescendo"
    hops: bool = True  # sample when messages arrive and leave

    def __post_init__(self) -> None:
        no_accounts = "the relay accepts every client on this machine; leave it out"
        refuse(
            self,
            user=no_accounts,
            password=no_accounts,
            persistence="a router stores no messages; leave it out",
            memory="a router has no memory limit; leave it out",
            threads="the relay has one thread; leave it out",
            tls="the relay as a router listens without TLS; leave it out",
        )


class RelayRouter:
    """The relay as a kind of system."""

    name = "relay"
    summary = "a small AMQP 1.0 router, part of Crescendo: a stand-in for qpid-dispatch"
    settings: type[base.SystemSettings] = RelaySettings
    ports = (AMQP,)
    declares = ("queues",)

    def find(self, home: Path | None, version: str | None) -> Installation:
        if home is not None or version not in {None, __version__}:
            raise ConfigError(f"the relay is part of Crescendo {__version__}; leave home and version out")
        return Installation(__version__, Path(__file__).parent, f"crescendo {__version__}, a stand-in for a router")

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        progress("the relay is part of Crescendo")
        return self.find(None, version)

    def plan(
        self, settings: RelaySettings, _installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        document = {
            "router": [{"id": settings.id, "mode": "standalone"}],
            "listener": [{"host": settings.listen, "port": ports[AMQP], "role": "normal"}],
            "address": [{"prefix": name, "distribution": "balanced"} for name in settings.queues],
        }
        argv: tuple[str, ...] = (sys.executable, "-m", "crescendo.systems.relay")
        argv += ("--router", str(directory / CONFIGURATION))
        if settings.hops:
            argv += ("--hops", str(directory / HOPS_FILE))
        url = endpoint(AMQP, settings, ports[AMQP])
        files = {CONFIGURATION: json.dumps(document, indent=2)}
        return Blueprint(files, (Launch(self.name, argv),), {AMQP: url, MANAGEMENT: url})

    def probe(self, endpoints: Mapping[str, str], _settings: RelaySettings) -> None:
        pass_a_message(endpoints[AMQP], _PROBE_ADDRESS, _PROBE_TIMEOUT_S)


RELAY = RelayRouter()
