"""What must a protocol driver implement to be driven at wire speed?

Two small interfaces. The engines in `load.engine` know only these, so a protocol is one module that implements them. A
channel is one connection; it never blocks and never sleeps.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from crescendo.wire.stamp import Stamps

Octets = npt.NDArray[np.uint8]


class SettledMessages(NamedTuple):
    """The messages with these sequence numbers reached this settlement."""

    seqs: range | npt.NDArray[np.int64]
    settlement: int


class ReceivedMessages(NamedTuple):
    """Messages that were read together: one payload per row, valid until the next pump."""

    payloads: Octets
    redelivered: bool
    batched: bool


class LoadChannel(Protocol):
    """What both directions have in common."""

    ready: bool  # connected, signed in, attached
    closed: str | None  # why the connection ended; None while it is open
    read_ns: int  # when the last read returned
    drained: bool  # whether the last read left nothing in the socket
    read_limit: int | None  # bytes per read; None: as many as there are
    stamps_reads: bool  # whether a read asks the kernel when its bytes arrived
    arrived_ns: int | None  # when the newest bytes of the last such read did, on the monotonic clock; None if unknown

    @property
    def pending(self) -> bool:
        """Whether data was read that only another `pump` hands out; polling the file descriptor does not show it."""
        ...

    def fileno(self) -> int: ...

    def oldest_unread_ns(self) -> int | None:
        """When the first unread byte arrived here, on the monotonic clock; None if the kernel does not tell."""
        ...

    def flush(self) -> bool:
        """Write buffered output; True when nothing is left."""
        ...

    def keep_alive(self, now_ns: int) -> None:
        """Send and expect heartbeats. Called a few times per second."""
        ...

    def give_up(self, reason: str) -> None:
        """Close at once: the system does not do its part."""
        ...

    def start_close(self) -> None:
        """Start the closing handshake. Incoming messages are discarded from here on."""
        ...

    def peer_closed(self) -> bool:
        """Whether the system has answered our close, and so has processed everything before it."""
        ...

    def close(self) -> None:
        """Close the socket, after a close frame if none was sent yet, without waiting for a reply."""
        ...


class SendChannel(LoadChannel, Protocol):
    """One sending connection with one reusable batch."""

    stamps: Stamps  # the stamps of the batch, to be filled in before `send`
    bodies: Octets  # the payloads of the batch, stamps included
    capacity: int
    batched: int  # messages that were sent by the batch path

    def room(self) -> int:
        """How many messages may be sent now; 0 while the system's credit or the socket blocks."""
        ...

    def resize(self, size: int) -> None:
        """From here on messages have this many bytes; `stamps`, `bodies` and `capacity` are replaced."""
        ...

    def send(self, first_seq: int, count: int) -> bool:
        """Send the first `count` messages of the batch; their sequence numbers count up from `first_seq`.

        True when they are written. Otherwise the batch must not be changed until `room` is positive again.
        """
        ...

    def prepare(self, count: int) -> memoryview | None:
        """Encode the first `count` messages of the batch as the next to be sent, one after the other.

        None if they cannot be encoded ahead of time. The bytes are valid until messages are sent in another way.
        """
        ...

    def write(self, octets: memoryview) -> bool:
        """Send prepared messages, in their order. Returns the same as `send`."""
        ...

    def mark_prepared_sent(self, first_seq: int, sent_ns: list[int]) -> None:
        """Prepared messages were written, one at each of these times. Must be called before any other method."""
        ...

    def pump(self) -> list[SettledMessages]:
        """Read what arrived and return the settled messages."""
        ...


class ReceiveChannel(LoadChannel, Protocol):
    """One receiving connection that grants its own credit."""

    window: int  # messages that may be in flight unsettled; 0 if the system does not say

    def begin(self) -> None:
        """Start the flow of messages. Before this none may arrive, because the engine does not record yet."""
        ...

    def pump(self) -> Iterator[ReceivedMessages]:
        """Read once and yield what arrived."""
        ...

    def settle(self) -> None:
        """Everything handed out is consumed: settle it and grant more credit."""
        ...
