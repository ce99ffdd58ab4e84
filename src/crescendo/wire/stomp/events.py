"""What can happen on a STOMP connection?

The events that `Connection.next_event` yields to a client. Messages come in batches; a single one is a batch of one,
so there is one way to handle them.
"""

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from crescendo.wire.stomp.escaping import Version, unescape
from crescendo.wire.stomp.handshake import Agreement

Octets = npt.NDArray[np.uint8]
MAX_REASON = 400


class Connected(NamedTuple):
    """The server let us in."""

    agreement: Agreement
    server: str


class Texts(Sequence[str]):
    """One header of each message in a batch, read when somebody asks: most only ask for the last."""

    def __init__(self, rows: Octets, version: Version) -> None:
        self._rows = rows
        self._version = version

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return Texts(self._rows[index], self._version)
        return unescape(self._rows[index].tobytes().decode(), self._version)


class Deliveries(NamedTuple):
    """Messages that arrived together and look alike.

    `bodies` has one row a message and is a view into the receive buffer, valid until the next `receive_buffer()`; so
    are the ids. `headers` are those of the first message; numbers in its ids and times differ in the others.
    """

    subscription: str
    ids: Sequence[str]  # by which they are acknowledged; empty texts where the server will not have them acknowledged
    bodies: Octets
    headers: dict[str, str]
    redelivered: bool
    batched: bool


class Receipts(NamedTuple):
    """The server has done what was asked with these receipt ids, in this order."""

    ids: Sequence[str]
    numbers: npt.NDArray[np.int64] | None  # the same as numbers, where many came together and all of them are


class Failed(NamedTuple):
    """An ERROR frame in the server's own words; the connection is over."""

    reason: str
    receipt: str | None


Event = Connected | Deliveries | Receipts | Failed


def reason_of(headers: dict[str, str], body: bytes) -> str:
    """One line from an ERROR frame: its message, and what its body adds."""
    message = _one_line(headers.get("message", ""))
    detail = _one_line(body[: 4 * MAX_REASON].decode(errors="replace"))
    words = ": ".join(part for part in (message, detail if detail != message else "") if part)
    return words[:MAX_REASON] or "no reason given"


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())
