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
    """The server accepted the connection."""

    agreement: Agreement
    server: str


class HeaderValues(Sequence[str]):
    """One header of each message in a batch, decoded on access: most callers need only the last."""

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
            return HeaderValues(self._rows[index], self._version)
        return unescape(self._rows[index].tobytes().decode(), self._version)


class Deliveries(NamedTuple):
    """Messages that arrived together and differ only in body and in digits of their headers.

    `bodies` has one row per message and is a view into the receive buffer, valid until the next `receive_buffer()`; so
    are the ids. `headers` are those of the first message; the others differ in the digits of ids and times.
    """

    subscription: str
    ids: Sequence[str]  # for acknowledgements; empty if the server expects none
    bodies: Octets
    headers: dict[str, str]
    redelivered: bool
    batched: bool


class Receipts(NamedTuple):
    """The server has processed the frames with these receipt ids, in this order."""

    ids: Sequence[str]
    numbers: npt.NDArray[np.int64] | None  # the ids of a batch as numbers, if all of them are


class Failed(NamedTuple):
    """An ERROR frame with the server's own text; the connection is over."""

    reason: str
    receipt: str | None


Event = Connected | Deliveries | Receipts | Failed


def reason_of(headers: dict[str, str], body: bytes) -> str:
    """One line from an ERROR frame: its message, plus its body if that adds anything."""
    message = _one_line(headers.get("message", ""))
    detail = _one_line(body[: 4 * MAX_REASON].decode(errors="replace"))
    text = ": ".join(part for part in (message, detail if detail != message else "") if part)
    return text[:MAX_REASON] or "no reason given"


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())
