"""What does every system under test have in common?

A kind finds its installation and turns settings into a blueprint: files to write, processes to start, URLs to serve.
That is pure. Starting, waiting, stopping and cleaning up are the same for all kinds and live in `instance`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from msgspec import Meta, Struct

from crescendo.model import protocols
from crescendo.model.units import Size

USER = "crescendo"
LOOPBACK_ADDRESS = "127.0.0.1"
AMQP, AMQP091, STOMP = protocols.AMQP10.endpoint, protocols.AMQP091.endpoint, protocols.STOMP.endpoint
MQTT, MLMQ = protocols.MQTT.endpoint, protocols.MLMQ.endpoint
OPENWIRE, CORE = protocols.OPENWIRE.endpoint, protocols.CORE.endpoint
MANAGEMENT = "management"
"""Endpoint names. Management is HTTP, or AMQP for routers."""


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an instance serves TLS. PEM files; without them the instance gets a private certificate authority."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None
    client_certificates: Literal["required", "optional"] | None = None

    def __post_init__(self) -> None:
        given = [path is not None for path in (self.certificate, self.key, self.ca)]
        if any(given) and not all(given):
            raise ValueError("certificate, key and ca go together; give all three, or none to have them generated")
        if all(given) and self.client_certificates is not None:
            raise ValueError(
                "with client_certificates the load needs a certificate that only our own authority can sign; "
                "leave certificate, key and ca out"
            )


class SystemSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that all kinds share. A kind that cannot honour one of them refuses it."""

    user: str = USER
    password: str | None = None  # None: a fresh random one for this instance
    protocols: list[str] | None = None  # None: all that the kind supports
    persistence: bool = True
    memory: Size | None = None
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    queues: list[str] = []
    tls: bool | TlsSettings = False
    listen: str = LOOPBACK_ADDRESS  # one IPv4 address of this machine

    @property
    def secure(self) -> TlsSettings | None:
        """The TLS settings; None when TLS is off."""
        if isinstance(self.tls, bool):
            return TlsSettings() if self.tls else None
        return self.tls

    @property
    def extra_ports(self) -> tuple[str, ...]:
        """Listeners that these settings add to those that every instance of the kind has."""
        return ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes of a system that consists of several, each of which can fail alone."""
        return ()

    @property
    def node_data(self) -> Mapping[str, str]:
        """Node -> the part of the data directory where it keeps messages; nodes that share a store have the same."""
        return {}


def node_name(number: int) -> str:
    """The name of a node: of its processes, its log, and in faults. The first is number 1."""
    return f"node{number}"


def numbered(name: str, number: int) -> str:
    """The port or endpoint of a node; those of the first node have the plain names."""
    return name if number == 1 else f"{name}-{number}"


@dataclass(frozen=True)
class Installation:
    """One version of a system on this machine. The manifest records it."""

    version: str
    home: Path
    origin: str  # "package rabbitmq-server 3.10.8-1", "maven org.apache.activemq:apache-artemis:2.50.0", "given"
    sha256: str | None = None  # of the archive it was unpacked from
    java: Path | None = None  # the java command it runs on
    java_version: str | None = None


@dataclass(frozen=True)
class Launch:
    """One process of an instance. Never a shell or a daemon: the pid that we start is the process that serves."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # added to a minimal environment
    cwd: str | None = None
    listens_on: int | None = None  # the next launch waits until this port accepts
    listens_at: str = LOOPBACK_ADDRESS
    stands_by: tuple[str, ...] = ()  # texts of its log that say that it will serve when another node ends
    node: str = ""  # the node that it is a process of, where there are several
    ends_slowly: bool = False  # it is killed where its data is deleted anyway


@dataclass(frozen=True)
class Blueprint:
    """The plan of an instance. Besides its files, its directory gets empty data/, logs/ and tmp/ directories."""

    files: Mapping[str, str]  # path in the instance directory -> text; may hold secrets, so mode 0600
    launches: tuple[Launch, ...]  # started in this order, stopped in reverse
    endpoints: Mapping[str, str]  # endpoint name -> URL with credentials
    secrets: frozenset[str] = frozenset()  # the files that the manifest must not show
    needs_keystore: bool = False  # whether TLS needs PKCS 12 stores for Java, besides the PEM files
    account: str | None = None  # what it runs as when root starts it; None: an account that nobody else has
    outside_dir_file: str | None = None  # as root: gets the path of a directory that other accounts can reach
    serving: int = -1  # index of the launch that is the system itself; inspectors watch its pid
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # endpoint -> queue -> what clients call it
    further_nodes: tuple[
        Mapping[str, str], ...
    ] = ()  # the endpoints of each node after the first, which clients try next


@runtime_checkable
class SystemKind(Protocol):
    """A kind of system that can be started. One module each, one line in the registry."""

    name: str
    summary: str
    settings: type[SystemSettings]
    ports: tuple[str, ...]  # the endpoints (and other listeners) that need their own port
    declares: tuple[str, ...]  # the settings that name what must exist from the start: queues, topics

    def find(self, home: Path | None, version: str | None) -> Installation:
        """The installation to use. When there is none, the ConfigError names the cure."""
        ...

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        """Install the system. Does nothing when it is already installed."""
        ...

    def plan(self, settings: Any, installation: Installation, directory: Path, ports: Mapping[str, int]) -> Blueprint:
        """Pure. `settings` is an instance of `self.settings` with the password filled in."""
        ...

    def probe(self, endpoints: Mapping[str, str], settings: Any) -> None:
        """Return when the system serves, else raise PeerError. Called repeatedly until it succeeds."""
        ...


class DataDisk(Protocol):
    """A disk of its own for the data of an instance."""

    def attach(self, directory: Path) -> None:
        """Mount it over this directory, which is empty."""

    def detach(self) -> None:
        """Unmount it; safe to call twice."""


@dataclass(frozen=True)
class Surroundings:
    """What an instance is given besides its blueprint, so that it can be broken in the run."""

    disks: Mapping[str, DataDisk] = field(default_factory=dict)  # part of the data directory -> its disk; "": all of it
    env: Callable[[Path, str], Mapping[str, str]] = lambda *_: {}  # of each process: from instance directory and node
    files: Mapping[str, str] = field(default_factory=dict)


class Instance(Protocol):
    """A running system."""

    @property
    def url(self) -> str:
        """The URL for the load."""
        ...

    @property
    def endpoints(self) -> Mapping[str, str]:
        """All URLs, with credentials: pass them on, but never write them to disk."""
        ...

    @property
    def pid(self) -> int:
        """The process that serves."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What was started: kind, version, origin, checksum, JVM, pid, ports, settings. Contains no secrets."""
        ...

    def stop(self) -> None:
        """Stop the system and remove everything; safe to call twice."""
        ...
