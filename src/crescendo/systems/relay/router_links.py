"""Where do messages enter and leave a router, and which of them are unsettled?

An inlet is a link on which messages arrive, from a client or from another router; an outlet one on which they leave. A
message stays with its inlet until the receiving side settles it, and its outcome then goes back to where it came from.
Makes no decisions.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crescendo.net.transport import Transport
from crescendo.systems.relay.queues import Octets
from crescendo.systems.relay.unsettled import take_settled
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.performatives import Attach

INTER_ROUTER = "inter-router"
OUTCOMES = ("accepted", "released", "modified", "rejected")
Ids = npt.NDArray[np.uint32]


@dataclass(eq=False)
class RouterPeer:
    """One connection: of a client, to or from another router, or to a broker."""

    transport: Transport
    connection: Connection
    role: str
    identity: int
    name: str = ""  # of a connector
    router: str | None = None  # the id of the router at the other end, once it has said it
    cost: int = 1
    opened: bool = False
    container: str = ""
    inlets: dict[int, "Inlet"] = field(default_factory=dict)
    outlets: dict[int, "Outlet"] = field(default_factory=dict)
    control_out: int | None = None  # the link on which we send advertisements
    control_in: int | None = None
    writable_watched: bool = False
    written_s: float = 0.0
    read_s: float = 0.0
    silent_since_s: float = 0.0  # when something arrived last, without the time in which we did not run ourselves
    arrived: int = 0  # messages
    departed: int = 0

    @property
    def is_inter_router(self) -> bool:
        return self.role == INTER_ROUTER


@dataclass(eq=False)
class RoutedBatch:
    """Messages of one layout that arrived together, in the order of their delivery ids."""

    inlet: "Inlet"
    ids: Ids
    rows: Octets
    body_start: int
    body_length: int
    settled: bool
    arrived_ns: int
    copies: npt.NDArray[np.int32] | None = None  # multicast: receivers that have not settled yet

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> "RoutedBatch":
        copies = None if self.copies is None else self.copies[part]
        rows, ids = self.rows[part], self.ids[part]
        return RoutedBatch(
            self.inlet, ids, rows, self.body_start, self.body_length, self.settled, self.arrived_ns, copies
        )


@dataclass(eq=False)
class Inlet:
    """A link on which messages arrive."""

    peer: RouterPeer
    handle: int
    name: str
    address: str
    egress: str | None = None  # from another router: the router that these messages are for
    granted: int = 0
    outstanding: int = 0  # arrived, and neither settled nor passed on settled
    waiting: deque[RoutedBatch] = field(default_factory=deque)
    waiting_since_s: float = 0.0
    gone: bool = False
    deliveries: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    presettled: int = 0
    attached: bool = True  # the other side has answered
    linked: "Outlet | None" = None  # of a routed link: its other half
    request: Attach | None = None  # of a routed link: the attach that is not answered yet


@dataclass(eq=False)
class Outlet:
    """A link on which messages leave."""

    peer: RouterPeer
    handle: int
    name: str
    address: str
    egress: str | None = None  # to another router: the router that these messages are for
    settled: bool = False
    attached: bool = True  # the other side has answered
    batch: TransferBatch | None = None
    batch_before: bytes = b""
    unsettled: deque[tuple[int, RoutedBatch]] = field(default_factory=deque)
    unsettled_count: int = 0
    deliveries: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    presettled: int = 0
    linked: Inlet | None = None
    request: Attach | None = None

    def take(self, first: int, last: int) -> list[RoutedBatch]:
        """Remove the deliveries first to last from the unsettled ones, and return them."""
        taken = take_settled(self.unsettled, first, last)
        self.unsettled_count -= sum(map(len, taken))
        return taken
