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
    """The other side has opened the connection, and says which product it is if it cares to."""

    container_id: str
    product: str = ""


class Begun(NamedTuple):
    """The other side has begun the session."""


class Attached(NamedTuple):
    """The other side has attached a link; on our own handle when it answers ours."""

    handle: int
    attach: Attach


class Credited(NamedTuple):
    """A receiver granted credit, or the session's window opened."""

    handle: int | None


class Deliveries(NamedTuple):
    """Messages that arrived together and look alike.

    `messages` has one row a message and is a view into the receive buffer: it is valid until the next
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
    """The other side has settled, or reached an outcome for, these deliveries.

    Each stretch is the id of a first and of a last delivery (inclusive); ids wrap at 2^32.
    """

    role: bool
    stretches: list[tuple[int, int]]
    settled: bool
    state: Any


class Detached(NamedTuple):
    handle: int
    error: str


class Ended(NamedTuple):
    error: str


class Closed(NamedTuple):
    """The connection is over; `error` is the other side's own words, empty when all was well."""

    error: str


class Refused(NamedTuple):
    """The other side did not let us in."""

    reason: str


Event = Opened | Begun | Attached | Credited | Deliveries | Settled | Detached | Ended | Closed | Refused


def error_text(error: object) -> str:
    """The other side's words, from whatever stands in an error field."""
    if error is None:
        return ""
    return str(error) if isinstance(error, Composite) else repr(error)
