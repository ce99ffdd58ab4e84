"""What can happen on an AMQP 1.0 connection?

The events that `Connection.next_event` yields. Deliveries come in batches; a single message is a batch of one, so
there is one way to handle them.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp10.performatives import Attach, Composite

Octets = npt.NDArray[np.uint8]


class Opened(NamedTuple):
    """The peer has opened the connection; `product` is empty when the peer does not name one."""

    container_id: str
    product: str = ""


class Begun(NamedTuple):
    """The peer has begun the session."""


class Attached(NamedTuple):
    """The peer has attached a link, or answered ours; `handle` is our own handle."""

    handle: int
    attach: Attach


class Credited(NamedTuple):
    """A receiver granted credit, or the session's window opened."""

    handle: int | None


class Deliveries(NamedTuple):
    """Messages of the same layout that arrived together.

    `messages` has one row per message and is a view into the receive buffer: it is valid until the next
    `receive_buffer()`. The body is the same slice of every row.
    """

    handle: int
    ids: npt.NDArray[np.uint32]
    settled: bool
    messages: Octets
    body_start: int
    body_length: int
    redelivered: bool
    batched: bool

    @property
    def bodies(self) -> Octets:
        return self.messages[:, self.body_start : self.body_start + self.body_length]


class Settled(NamedTuple):
    """The peer has settled these deliveries, or reached an outcome for them.

    Each range is a first and a last delivery id (inclusive); ids wrap at 2^32.
    """

    role: bool
    ranges: list[tuple[int, int]]
    settled: bool
    state: Any


class Detached(NamedTuple):
    handle: int
    error: str


class Ended(NamedTuple):
    error: str


class Closed(NamedTuple):
    """The connection is closed; `error` is the peer's reason, empty after a normal close."""

    error: str


class Refused(NamedTuple):
    """The peer refused the connection."""

    reason: str


Event = Opened | Begun | Attached | Credited | Deliveries | Settled | Detached | Ended | Closed | Refused


def error_text(error: object) -> str:
    """The peer's reason, from any value of an error field."""
    if error is None:
        return ""
    return str(error) if isinstance(error, Composite) else repr(error)
