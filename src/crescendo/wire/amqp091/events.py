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
    """Both sides agree, and the virtual host is open; the other side's own description of itself."""

    properties: Table


class ChannelOpened(NamedTuple):
    channel: int


class MethodReceived(NamedTuple):
    """A method that changes nothing here: an answer to something we asked, or, for a server, a request."""

    channel: int
    method: Method


class Deliveries(NamedTuple):
    """Messages that arrived together and look alike.

    `bodies` has one row a message and is a view into the receive buffer: it is valid until the next
    `receive_buffer()`. `method` and `properties` are the first message's; the others differ in nothing but their
    delivery tags. For a server, which is sent publishes, the tags are the numbers that its confirms must name.
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
    """A mandatory message that found no queue comes back."""

    channel: int
    method: BasicReturn
    properties: Properties
    body: bytes


class Confirmed(NamedTuple):
    """The other side has taken responsibility for these messages, or refused it.

    Each stretch is a first and a last number (inclusive) in the order of publishing, counted from 1.
    """

    channel: int
    stretches: list[tuple[int, int]]
    accepted: bool


class Blocked(NamedTuple):
    """The other side reads no more messages until it says otherwise."""

    reason: str


class Unblocked(NamedTuple):
    pass


class ChannelClosed(NamedTuple):
    """One channel is over; `reason` is the other side's own words, empty when we had asked for it."""

    channel: int
    code: int
    reason: str


class Closed(NamedTuple):
    """The connection is over; `reason` is the other side's own words, empty when we had asked for it."""

    code: int
    reason: str


class Refused(NamedTuple):
    """The other side did not let us in."""

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
