"""What can happen on a Core connection?

The events that `Connection.next_event` yields to a client. Messages come in batches; a single one is a batch of one, so
there is one way to handle them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.artemis_core.messages import CoreMessage
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.responses import Rejected, Responses

Octets = npt.NDArray[np.uint8]
MAX_REASON = 400


class Connected(NamedTuple):
    """The broker created the session."""

    version: int  # that both sides speak
    server_version: int  # the newest that the broker knows


class Deliveries(NamedTuple):
    """Messages that arrived together and differ only in ids, times, properties and bodies.

    `bodies` and `ids` have one row per message and are views into the receive buffer, valid until the next
    `receive_buffer()`. `message` is the first one without its body.
    """

    consumer: int
    ids: Octets  # eight bytes each, as encoded
    bodies: Octets
    message: CoreMessage
    redelivered: bool
    frame_bytes: int  # what the messages took of the consumer's window, together
    is_credited: bool  # whether that much was granted again already
    batched: bool


class Completed(NamedTuple):
    """The broker has processed a request of ours; some requests are answered with information."""

    request: int
    answer: Packet


class Refused(NamedTuple):
    """The broker refused a request of ours; the first one creates the session."""

    request: int
    reason: str
    code: int


class Granted(NamedTuple):
    """The broker has room for this many bytes more at an address."""

    credits: int


class CreditRefused(NamedTuple):
    """The address is full, and its policy is to refuse: this many bytes were not granted."""

    credits: int
    address: str


class Closed(NamedTuple):
    """The broker ends the connection, or a consumer; its own words, if it gave any."""

    reason: str | None


Event = Connected | Deliveries | Responses | Completed | Rejected | Refused | Granted | CreditRefused | Closed


def reason_of(text: str | None, code: int) -> str:
    """One line from an exception: its message, or its number if it has none."""
    return " ".join((text or "").replace("\0", " ").split())[:MAX_REASON] or f"error {code}, no reason given"
