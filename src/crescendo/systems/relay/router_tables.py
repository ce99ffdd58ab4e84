"""What does a router know while it runs?

Its configuration, its view of the network, its connections, and the links by address. The parts of a router share this;
each of them changes what its own job is about. Makes no decisions.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crescendo.systems.relay.link_state import LinkState
from crescendo.systems.relay.router_config import RouterConfig
from crescendo.systems.relay.router_links import OUTCOMES, Inlet, Outlet, RouterPeer

CONTROL = "_relay/network"
DATA_PREFIX = "_relay/to/"
LINK_PREFIX = "_relay/link/"
MANAGEMENT = "$management"


@dataclass(eq=False)
class RouterTables:
    """The state of one router."""

    config: RouterConfig
    flush: Callable[[RouterPeer], bool]
    state: LinkState = field(init=False)
    peers: dict[int, RouterPeer] = field(default_factory=dict)
    receivers: dict[str, list[Outlet]] = field(default_factory=dict)
    ways: dict[tuple[str, str], Outlet] = field(default_factory=dict)  # (address, egress router) -> link to next hop
    waiting: dict[Inlet, None] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # connector -> why it is not connected, in words
    topics: set[str] = field(default_factory=set)  # addresses that a client called a topic
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    presettled: int = 0
    ingress: int = 0
    egress: int = 0
    transit: int = 0

    def __post_init__(self) -> None:
        # A router that was restarted is newer than it was before.
        self.state = LinkState(self.config.identity.id, time.time_ns())

    def peer_to(self, router: str) -> RouterPeer | None:
        """The cheapest connection to a neighbour."""
        found = [peer for peer in self.peers.values() if peer.router == router]
        return min(found, key=lambda peer: (peer.cost, peer.identity), default=None)
