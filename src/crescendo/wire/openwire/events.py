"""What can happen on an OpenWire connection?

The events that `Connection.next_event` yields to a client. Messages come in batches; a single one is a batch of one, so
there is one way to handle them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.openwire.messages import Message
from crescendo.wire.openwire.negotiation import Agreement
from crescendo.wire.openwire.structures import Throwable
from crescendo.wire.responses import Rejected, Responses

Octets = npt.NDArray[np.uint8]
MAX_REASON = 400


class Connected(NamedTuple):
    """The broker accepted the connection."""

    agreement: Agreement
    broker: str  # its name


class Deliveries(NamedTuple):
    """Messages that arrived together and differ only in ids, times and bodies.

    `bodies` and `ids` have one row per message and are views into the receive buffer, valid until the next
    `receive_buffer()`. `message` is the first one without its content; the others have other numbers and times.
    """

    consumer: int
    destination: bytes  # as encoded, for acknowledgements
    ids: Octets  # as encoded, for acknowledgements
    bodies: Octets
    message: Message
    redelivered: bool
    advisory: bool  # about the broker itself, not from a client
    batched: bool


class Completed(NamedTuple):
    """The broker has processed another command of ours."""

    command_id: int


class Refused(NamedTuple):
    """The broker refused another command of ours."""

    command_id: int
    reason: str


class Released(NamedTuple):
    """The broker has room for as many bytes more of a producer with a window."""

    producer: int
    size_bytes: int


class Closed(NamedTuple):
    """The broker ends the connection, or a consumer; its own words, if it gave any."""

    reason: str | None


Event = Connected | Deliveries | Responses | Completed | Rejected | Refused | Released | Closed


def reason_of(error: Throwable | None) -> str:
    """One line from an exception: its message, or its class if it has none."""
    if error is None:
        return "no reason given"
    text = " ".join((error.message or error.class_name or "").replace("\0", " ").split())
    return text[:MAX_REASON] or "no reason given"
