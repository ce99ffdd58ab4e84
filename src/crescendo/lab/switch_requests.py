"""What can the switch of a lab be asked for?

Values that travel as lines of JSON, from the owner of the lab to `lab/switch_program.py`. Apart from that, because the
owner needs no netlink.
"""

from typing import Literal

from msgspec import Struct

OK = "ok"
BRIDGE = "lab"


class AddBridge(Struct, frozen=True, tag="bridge"):
    """A further bridge: of another IP network, if it has the address of a router, or of an access point."""

    name: str
    router: str | None = None
    uplink: str | None = None  # the bridge that an access point is connected to


class ConnectHost(Struct, frozen=True, tag="join"):
    """Connect the host that the process keeps. With `tap`, the port exists, and this is its other end."""

    port: str
    keeper: int
    address: str
    bridge: str = BRIDGE
    tap: str | None = None


class LeaveBridge(Struct, frozen=True, tag="leave"):
    """The host has no link any more."""

    port: str


class JoinBridge(Struct, frozen=True, tag="associate"):
    """The host gets a link at this access point."""

    port: str
    bridge: str


class SetAddress(Struct, frozen=True, tag="address"):
    """The host has this address only, and reaches other networks through the router."""

    keeper: int
    address: str
    router: str


class AddLocalAddress(Struct, frozen=True, tag="local"):
    """The host itself answers at this address: a process of ours there is the link to the one who has it."""

    keeper: int
    address: str


class SetRoute(Struct, frozen=True, tag="route"):
    """The host reaches other networks through the router."""

    keeper: int
    router: str


class SetRetransmission(Struct, frozen=True, tag="retransmit"):
    """TCP of the host sends again after this time at the earliest, in its network and through the router."""

    keeper: int
    address: str
    rto_min_ms: int
    router: str | None = None


class SetLink(Struct, frozen=True, tag="carry"):
    """Cut the link of a host, or restore it."""

    port: str
    state: Literal["up", "down"]


class LimitLink(Struct, frozen=True, tag="limit"):
    """Limit each direction of a host's link, in bits per second: 0 removes the limit, None lets nothing pass."""

    port: str
    keeper: int
    up_bps: int | None
    down_bps: int | None


Request = (
    AddBridge
    | ConnectHost
    | LeaveBridge
    | JoinBridge
    | SetAddress
    | AddLocalAddress
    | SetRoute
    | SetRetransmission
    | SetLink
    | LimitLink
)
