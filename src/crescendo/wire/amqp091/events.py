"""What can happen on an AMQP 0-9-1 connection?

The events that `Connection.next_event` yields. Messages come in batches; a single message is a batch of one, so there
is one way to handle them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp091.methods import BasicReturn, Content, Method
from crescendo.wire.amqp091.properties import Properties
from crescendo.wire.amqp091.types import Table

Octets = npt.NDArray[np.uint8]


class Opened(NamedTuple):
    """The handshake is complete and the virtual host open; `properties` are the peer's own."""

    properties: Table


class ChannelOpened(NamedTuple):
    channel: int


class MethodReceived(NamedTuple):
    """A method without effect on the connection: the answer to a request of ours or, for a server, a request."""

    channel: int
    method: Method


class Deliveries(NamedTuple):
    """Messages of the same layout that arrived together.

    `bodies` has one row per message and is a view into the receive buffer: it is valid until the next
    `receive_buffer()`. `method` and `properties` are the first message's; the others differ only in their delivery
    tags. For a server, which receives publishes, the tags are the numbers that its confirms must name.
    """

    channel: int
    tags: npt.NDArray[np.uint64]
    bodies: Octets
    method: Content
    properties: Properties
    batched: bool

    @property
    def redelivered(self) -> bool:
        return bool(getattr(self.method, "redelivered", False))


class Returned(NamedTuple):
    """The broker returned a mandatory message that it could not route."""

    channel: int
    method: BasicReturn
    properties: Properties
    body: bytes


class Confirmed(NamedTuple):
    """The broker has taken responsibility for these messages, or refused it.

    Each range is a first and a last number (inclusive) in the order of publishing, counted from 1.
    """

    channel: int
    ranges: list[tuple[int, int]]
    accepted: bool


class Blocked(NamedTuple):
    """The broker has stopped reading messages until it sends `ConnectionUnblocked`."""

    reason: str


class Unblocked(NamedTuple):
    pass


class ChannelClosed(NamedTuple):
    """A channel is closed; `reason` is the peer's text, empty when we closed it."""

    channel: int
    code: int
    reason: str


class Closed(NamedTuple):
    """The connection is closed; `reason` is the peer's text, empty when we closed it."""

    code: int
    reason: str


class Refused(NamedTuple):
    """The peer refused the connection."""

    reason: str


Event = (
    Opened
    | ChannelOpened
    | MethodReceived
    | Deliveries
    | Returned
    | Confirmed
    | Blocked
    | Unblocked
    | ChannelClosed
    | Closed
    | Refused
)
