"""What is in the configuration of a relay that works as a router?

The sections of a router's configuration that the relay honours, and no others: a section or attribute that it would
ignore is an error. Reads and validates; opens nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model.errors import ConfigError

Port = Annotated[int, Meta(ge=0, le=65_535)]
Cost = Annotated[int, Meta(ge=1, le=2**31 - 1)]
PASSED = "/_passed"
Distribution = Literal["closest", "balanced", "multicast"]


class RouterIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """The router itself."""

    id: str
    mode: Literal["standalone", "interior"] = "standalone"
    defaultDistribution: Distribution = "balanced"


class RouterListener(Struct, frozen=True, forbid_unknown_fields=True):
    """A port that clients or other routers connect to."""

    port: Port
    host: str = "127.0.0.1"
    role: Literal["normal", "inter-router", "route-container"] = "normal"
    name: str = ""
    cost: Cost = 1
    authenticatePeer: str | bool = "no"
    saslMechanisms: str = "ANONYMOUS"

    def __post_init__(self) -> None:
        if str(self.authenticatePeer).lower() not in {"no", "false"} or self.saslMechanisms != "ANONYMOUS":
            raise ValueError(
                "a relay in a network accepts every client: authenticatePeer: no, saslMechanisms: ANONYMOUS"
            )


class RouterConnector(Struct, frozen=True, forbid_unknown_fields=True):
    """A connection that this router opens: to another router, or to a broker."""

    port: Port
    host: str = "127.0.0.1"
    role: Literal["inter-router", "route-container"] = "inter-router"
    name: str = ""
    cost: Cost = 1
    saslMechanisms: Literal["ANONYMOUS", "PLAIN"] = "ANONYMOUS"
    saslUsername: str = ""
    saslPassword: str = ""

    def __post_init__(self) -> None:
        if self.role == "route-container" and not self.name:
            raise ValueError("a connector to a broker needs a name, by which link routes and auto links call it")


class RouterAddress(Struct, frozen=True, forbid_unknown_fields=True):
    """How messages to addresses with this prefix are distributed."""

    prefix: str
    distribution: Distribution = "balanced"
    waypoint: Literal["yes", "no"] | bool = False

    @property
    def is_waypoint(self) -> bool:
        return self.waypoint in {"yes", True}


class LinkRoute(Struct, frozen=True, forbid_unknown_fields=True):
    """Links of clients to addresses with this prefix end at a broker: `in` to send there, `out` to receive."""

    prefix: str
    connection: str
    direction: Literal["in", "out"]


class AutoLink(Struct, frozen=True, forbid_unknown_fields=True):
    """A link of the router itself to a queue of a broker: `out` to send there, `in` to receive."""

    address: str
    connection: str
    direction: Literal["in", "out"]
    externalAddress: str = ""


class RouterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    router: Annotated[list[RouterIdentity], Meta(min_length=1, max_length=1)]
    listener: list[RouterListener] = field(default_factory=list)
    connector: list[RouterConnector] = field(default_factory=list)
    address: list[RouterAddress] = field(default_factory=list)
    linkRoute: list[LinkRoute] = field(default_factory=list)
    autoLink: list[AutoLink] = field(default_factory=list)

    def __post_init__(self) -> None:
        brokers = {entry.name for entry in self.connector if entry.role == "route-container"}
        named = [route.connection for route in self.linkRoute] + [entry.connection for entry in self.autoLink]
        for name in named:
            if name not in brokers:
                raise ValueError(f"no connector with the role route-container is called {name!r}")

    @property
    def identity(self) -> RouterIdentity:
        return self.router[0]

    def distribution_of(self, address: str) -> Distribution:
        """The distribution of the longest prefix that matches."""
        entry = self.entry_of(address)
        return self.identity.defaultDistribution if entry is None else entry.distribution

    def received_as(self, address: str) -> str:
        """What receivers of an address receive: of a waypoint, that which has passed through its broker."""
        entry = self.entry_of(address)
        return f"{address}{PASSED}" if entry is not None and entry.is_waypoint else address

    def entry_of(self, address: str) -> RouterAddress | None:
        matching = [entry for entry in self.address if has_prefix(address, entry.prefix)]
        return max(matching, key=lambda entry: len(entry.prefix), default=None)


def has_prefix(address: str, prefix: str) -> bool:
    """Whether the prefix covers whole parts of the address, which . and / separate."""
    return address.startswith(prefix) and (len(address) == len(prefix) or address[len(prefix)] in "./")


def router_config(document: object, source: str) -> RouterConfig:
    try:
        return msgspec.convert(document, RouterConfig)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: the relay does not accept this configuration: {err}") from err


def read_router_config(path: Path) -> RouterConfig:
    try:
        return router_config(msgspec.json.decode(path.read_bytes()), str(path))
    except (OSError, msgspec.DecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err
