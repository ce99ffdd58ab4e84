"""What does every system under test have in common?

A kind knows where its files are, and turns settings into a blueprint: files to write, processes to start, URLs it will
serve at. That is pure. Starting, waiting, stopping and cleaning up are the same for all kinds and live in `instance`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from crescendo.model.units import Size

OnFork = Callable[[], None]

USER = "crescendo"
AMQP, AMQP091, STOMP, MQTT, MLMQ, MANAGEMENT = "amqp", "amqp091", "stomp", "mqtt", "mlmq", "management"
"""Names of endpoints, which are also the URL schemes of the protocols. Management is http, or AMQP for routers."""


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an instance speaks TLS. Files of PEM; without them a private authority is made for the instance."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    client_certificates: Literal["required", "optional"] | None = None

    def __post_init__(self) -> None:
        given = [name is not None for name in (self.certificate, self.key, self.ca)]
        if any(given) and not all(given):
            raise ValueError("certificate, key and ca go together; give all three, or none to have them made")
        if all(given) and self.client_certificates is not None:
            raise ValueError(
                "with client_certificates the load needs one that we can only make with an authority of our own; "
                "leave certificate, key and ca out"
            )


class SystemSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a person may set about any broker. A kind that cannot honour one of these refuses it."""

    user: str = USER
    password: str | None = None  # None: a fresh random one for this instance
    protocols: list[str] | None = None  # None: all that the kind speaks
    persistence: bool = True
    memory: Size | None = None
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    queues: list[str] = []
    tls: bool | TlsSettings = False

    @property
    def secure(self) -> TlsSettings | None:
        """How TLS is spoken; None when it is not."""
        if isinstance(self.tls, bool):
            return TlsSettings() if self.tls else None
        return self.tls

    @property
    def further_ports(self) -> tuple[str, ...]:
        """Listeners that these settings ask for beyond those that every instance of the kind has."""
        return ()


@dataclass(frozen=True)
class Installation:
    """Files of one version of a system on this machine. The manifest names them."""

    version: str
    home: Path
    origin: str  # "package rabbitmq-server 3.10.8-1", "maven org.apache.activemq:apache-artemis:2.50.0", "given"
    sha256: str | None = None  # of the archive it came from
    java: Path | None = None  # the java command it runs on
    java_version: str | None = None


@dataclass(frozen=True)
class Launch:
    """One process of an instance. Never a shell, never a daemon: the pid we start is the process that serves."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # added to a minimal environment
    cwd: str | None = None
    user: str | None = None  # the unprivileged account to use when we are root and the program refuses root
    listens_on: int | None = None  # the next launch waits until this port accepts


@dataclass(frozen=True)
class Blueprint:
    """An instance before anything exists of it. Besides its files it finds empty data/, logs/ and tmp/."""

    files: Mapping[str, str]  # path under the instance's directory -> text; may hold secrets, so mode 0600
    launches: tuple[Launch, ...]  # started in this order, stopped in the opposite one
    endpoints: Mapping[str, str]  # endpoint name -> URL with credentials
    secrets: frozenset[str] = frozenset()  # those of the files that nobody needs to see afterwards
    stores: bool = False  # whether TLS needs certificates in stores that Java reads, beside those in PEM
    outside: tuple[str, ...] = ()  # directories elsewhere that it may have made; they go when it goes
    serving: int = -1  # which launch is the system itself: its pid is the one that inspectors watch


class SystemKind(Protocol):
    """A kind of system that can be started. One module each, one line in the registry."""

    name: str
    summary: str
    settings: type[SystemSettings]
    ports: tuple[str, ...]  # the endpoints (and other listeners) that need a port of their own
    declares: tuple[str, ...]  # the settings with names to be there from the start: queues, topics

    def find(self, home: Path | None, version: str | None) -> Installation:
        """The installation to use; ConfigError names the cure when there is none."""
        ...

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        """Get it. Does nothing when it is there already."""
        ...

    def plan(self, settings: Any, installation: Installation, directory: Path, ports: Mapping[str, int]) -> Blueprint:
        """Pure. `settings` is an instance of `self.settings` whose password is filled in."""
        ...

    def probe(self, endpoints: Mapping[str, str], settings: Any) -> None:
        """Show that it serves, or raise PeerError. Called again and again until it does."""
        ...


class Instance(Protocol):
    """A running system."""

    @property
    def url(self) -> str:
        """Where the load goes."""
        ...

    @property
    def endpoints(self) -> Mapping[str, str]:
        """All its URLs, with credentials: hand them on, never write them down."""
        ...

    @property
    def pid(self) -> int:
        """The process that serves."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What was started: kind, version, origin, checksum, JVM, pid, ports, settings. Holds no secrets."""
        ...

    def stop(self) -> None:
        """End it and leave nothing; safe to call twice."""
        ...
