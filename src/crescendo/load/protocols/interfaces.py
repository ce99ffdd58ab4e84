"""What must a protocol offer to be driven at wire speed?

Two small interfaces. The engines in `sender.py` and `receiver.py` know only these, so a protocol is one module that
implements them. A channel is one connection; it never blocks and never sleeps.
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
    """Messages that were read together: one payload a row, valid until the next pump."""

    payloads: Octets
    redelivered: bool
    batched: bool


class LoadChannel(Protocol):
    """What both directions have in common."""

    ready: bool  # connected, signed in, attached
    closed: str | None  # why the connection is over, None while it lives
    read_ns: int  # when the last read returned

    @property
    def pending(self) -> bool:
        """Whether something was read already that only another `pump` hands out; no file descriptor tells of it."""
        ...

    def fileno(self) -> int: ...

    def flush(self) -> bool:
        """Write what waits; True when nothing is left."""
        ...

    def keep_alive(self, now_ns: int) -> None:
        """Send and demand signs of life. Called a few times a second."""
        ...

    def start_close(self) -> None:
        """Say good-bye: nothing more is sent, and what still comes is not for us."""
        ...

    def peer_closed(self) -> bool:
        """Whether the system has hung up after our good-bye, and so has heard all that we said."""
        ...

    def close(self) -> None:
        """Let go, with a good-bye if there was none yet, without waiting for an answer."""
        ...


class SendChannel(LoadChannel, Protocol):
    """One sending connection with one reusable batch."""

    stamps: Stamps  # the stamps of the batch, to be filled in before `send`
    bodies: Octets  # the payloads of the batch, stamps included
    capacity: int
    batched: int  # messages that left by the batch path

    def room(self) -> int:
        """How many messages may go out now; 0 while the other side or the socket holds us back."""
        ...

    def resize(self, size: int) -> None:
        """From here on messages have this many bytes; `stamps`, `bodies` and `capacity` are others now."""
        ...

    def send(self, first_seq: int, count: int) -> bool:
        """Send the first `count` messages of the batch; their sequence numbers count up from `first_seq`.

        True when they have left. Otherwise the batch must not be touched before `room` says so.
        """
        ...

    def prepare(self, count: int) -> memoryview | None:
        """Number the first `count` messages of the batch as the next to leave: their bytes, one after the other.

        None where they cannot be written beforehand. They are right until messages leave in another way.
        """
        ...

    def write(self, octets: memoryview) -> bool:
        """Let prepared messages go, in their order. True when they have left; otherwise as for `send`."""
        ...

    def departed(self, first_seq: int, sent_ns: list[int]) -> None:
        """Prepared messages were written, one at each of these times. To be told before the channel is asked for
        anything else."""
        ...

    def pump(self) -> list[SettledMessages]:
        """Read what arrived and return what was settled."""
        ...


class ReceiveChannel(LoadChannel, Protocol):
    """One receiving connection that grants its own credit."""

    window: int  # messages that may be on their way before something is settled; 0 when the system does not tell

    def begin(self) -> None:
        """Let messages come. Before this none may, because nobody records them yet."""
        ...

    def pump(self) -> Iterator[ReceivedMessages]:
        """Read once and hand out what arrived."""
        ...

    def settle(self) -> None:
        """Everything that was handed out is done with: say so, and let more come."""
        ...
