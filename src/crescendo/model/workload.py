"""What load does one group of senders and receivers make?

Values only. A group says how many connections, where to, how large, how fast; it knows neither sockets nor clocks.
"""

import re
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.model.pacer import pacer_for
from crescendo.model.units import Size

STAMP_BYTES = 32
"""Every payload begins with a stamp of this size, so no message is smaller."""

MAX_PAYLOAD_BYTES = 64 * 2**20
MAX_CONNECTIONS = 32_767
PROTOCOLS = {"amqp10": "amqp", "amqp091": "amqp091", "stomp": "stomp", "mqtt": "mqtt"}
"""Protocol -> the scheme of its URLs, and the name of the endpoint at which a system speaks it."""

_ADDRESS = re.compile(r"(?:(queue|topic)://)?((?!\w+://)[^\s:/][^\s]*)")  # a misspelt scheme is not part of a name


class Settle(StrEnum):
    """What a sender waits for before it calls a message done."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


class Open(Struct, frozen=True, tag_field="kind", tag="open", forbid_unknown_fields=True):
    """Open loop: messages leave when they are due, whatever became of the earlier ones."""


class Window(Struct, frozen=True, tag_field="kind", tag="window", forbid_unknown_fields=True):
    """Closed loop: at most `size` messages of a connection are unsettled at a time; the next one waits for one of them.

    With a rate the messages are due all the same, and what the window costs them is in their response.
    """

    size: Annotated[int, Meta(ge=1, le=1_000_000)]


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Senders and receivers that share an address. Rate and count are per connection."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")] = "main"
    address: str = "queue://perf"
    protocol: str = "amqp10"
    senders: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    receivers: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    size: Size = Size(256)
    rate: Annotated[float, Meta(ge=0)] = 1000.0
    settle: Settle = Settle.AT_LEAST_ONCE
    mode: Open | Window = Open()

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r} is not available; choose from {', '.join(PROTOCOLS)}")
        if not _ADDRESS.fullmatch(self.address):
            raise ValueError(f"address {self.address!r} should read queue://NAME or topic://NAME")
        if not STAMP_BYTES <= self.size <= MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"size {self.size} is outside {STAMP_BYTES} to {MAX_PAYLOAD_BYTES} bytes; "
                f"every payload begins with a stamp of {STAMP_BYTES} bytes"
            )
        if isinstance(self.mode, Window) and self.settle is Settle.AT_MOST_ONCE:
            raise ValueError("a window counts unsettled messages, and at-most-once has none; use settle: at-least-once")
        pacer_for(self.rate)  # refuses a rate that nobody can keep
        if self.senders + self.receivers == 0:
            raise ValueError("a group needs at least one sender or one receiver")

    @property
    def is_topic(self) -> bool:
        return self.address.startswith("topic://")

    @property
    def window(self) -> int | None:
        """How many messages of a connection may be unsettled at a time; None for as many as the system allows."""
        return self.mode.size if isinstance(self.mode, Window) else None

    @property
    def destination(self) -> str:
        """The name that goes over the wire."""
        match = _ADDRESS.fullmatch(self.address)
        if match is None:  # __post_init__ has refused it
            raise ValueError(self.address)
        return match[2]

    def subscription_of(self, receiver_index: int) -> str:
        """Who owes what: receivers of a queue share its messages, each receiver of a topic is owed all of them."""
        return f"{self.address}#{self.name}.{receiver_index}" if self.is_topic else self.address
