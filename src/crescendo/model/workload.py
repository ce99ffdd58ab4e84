"""What load does one group of senders and receivers make?

Values only. A group says how many connections, where to, how large, how fast; it knows neither sockets nor clocks.
"""

from enum import StrEnum
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model.address import MLMQ_CONTENT_BYTES, MLMQ_NAME_CHARACTERS, Address, address_of
from crescendo.model.pacer import pacer_for
from crescendo.model.payload import MAX_PAYLOAD_BYTES, STAMP_BYTES, PayloadSize
from crescendo.model.units import Duration

__all__ = [
    "ECHO_BYTES", "MAX_CONNECTIONS", "MAX_PAYLOAD_BYTES", "PROTOCOLS", "STAMP_BYTES", "EchoMode", "Group", "Mode",
    "OpenMode", "PingPongMode", "Settle", "Summarize", "WindowMode",
]  # fmt: skip

MAX_CONNECTIONS = 32_767
MAX_PROPERTIES = 32
MAX_ANSWERING = 1000
PROTOCOLS = {"amqp10": "amqp", "amqp091": "amqp091", "stomp": "stomp", "mqtt": "mqtt", "mlmq": "mlmq"}
"""Protocol -> the scheme of its URLs, and the name of the endpoint at which a system speaks it."""

_EXACTLY_ONCE = ("amqp10", "mqtt")
_PLACE = "{n}"
ECHO_BYTES = STAMP_BYTES + 8
"""A message that is answered has room for the time of the answer behind its stamp."""


class Settle(StrEnum):
    """What a sender waits for before it calls a message done."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class OpenMode(Struct, frozen=True, tag_field="kind", tag="open", forbid_unknown_fields=True):
    """Open loop: messages leave when they are due, whatever became of the earlier ones."""


class WindowMode(Struct, frozen=True, tag_field="kind", tag="window", forbid_unknown_fields=True):
    """Closed loop: at most `size` messages of a connection are unsettled at a time; the next one waits for one of them.

    With a rate the messages are due all the same, and what the window costs them is in their response.
    """

    size: Annotated[int, Meta(ge=1, le=1_000_000)]


class PingPongMode(Struct, frozen=True, tag_field="kind", tag="ping-pong", forbid_unknown_fields=True):
    """One message at a time: receivers answer, and a connection's next message waits for the answer to its last."""


class EchoMode(Struct, frozen=True, tag_field="kind", tag="echo", forbid_unknown_fields=True):
    """Open loop, and receivers answer each message: the way there and the way there and back are both recorded."""


class Summarize(Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver counts what it gets, and publishes that once a period."""

    to: str
    every: Duration = Duration(10**9)
    of: Literal["messages", "transfers"] = "messages"  # transfers: the bytes of each server in gridFTP logs

    def __post_init__(self) -> None:
        if address_of(self.to).url is not None:
            raise ValueError("to: the summary goes to the group's own system; write topic://NAME")
        if self.every < 100_000_000:
            raise ValueError("every must be at least 100ms")


Mode = OpenMode | WindowMode | PingPongMode | EchoMode


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Senders and receivers that share an address. Rate and count are per connection."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")] = "main"
    address: str = "queue://perf"
    failover: list[str] | None = None  # further addresses; None: a connection that is lost stays lost
    destinations: Annotated[int, Meta(ge=1, le=MAX_CONNECTIONS)] = 1  # {n} in the address counts from 0 to these
    protocol: str = "amqp10"
    senders: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    receivers: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    size: PayloadSize = PayloadSize.fixed(256)
    rate: Annotated[float, Meta(ge=0)] = 1000.0
    settle: Settle = Settle.AT_LEAST_ONCE
    mode: Mode = OpenMode()
    properties: dict[str, str] = field(default_factory=dict)  # of every message; what selectors look at
    buffer: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None  # what waits beyond it is shed
    delay: Duration | None = None  # what a receiver takes for each message
    summarize: Summarize | None = None
    receive_rate: Annotated[float, Meta(gt=0)] | None = None  # the same, as messages a second

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r} is not available; choose from {', '.join(PROTOCOLS)}")
        self._check_addresses()
        self._check_ways()
        pacer_for(self.rate)  # refuses a rate that nobody can keep
        if self.senders + self.receivers == 0:
            raise ValueError("a group needs at least one sender or one receiver")
        if self.senders:
            _ = self.size.lines  # refuses a file that cannot be read
        if self.protocol == "mlmq":
            self._check_mlmq()

    def _check_mlmq(self) -> None:
        for where in (self.where, *(() if self.summarize is None else (address_of(self.summarize.to),))):
            if where.is_topic:
                raise ValueError(f"address: mlmq has queues only; write queue://{where.destination}")
            if len(where.destination) > MLMQ_NAME_CHARACTERS:
                raise ValueError(f"address: a queue of mlmq has a name of at most {MLMQ_NAME_CHARACTERS} characters")
        if self.senders and self.size.largest > MLMQ_CONTENT_BYTES:
            raise ValueError(
                f"size {self.size.largest} is more than mlmq takes; write {STAMP_BYTES} to {MLMQ_CONTENT_BYTES} bytes"
            )
        if self.properties:
            raise ValueError("properties: messages of mlmq have none; leave them out")
        if self.is_answered and len(self._answering(MAX_CONNECTIONS)) > MLMQ_NAME_CHARACTERS:
            raise ValueError("address: its name is too long for mlmq once the queues of the answers are named after it")

    def _check_addresses(self) -> None:
        places = {address_of(text).node for text in self.addresses}
        if len(places) > 1:
            raise ValueError(f"addresses of one group lead to one place, not to {' and '.join(sorted(places))}")
        for text in self.addresses:
            address_of(text).check(self.protocol)
        if (_PLACE in self.address) != (self.destinations > 1):
            raise ValueError(f"destinations and {_PLACE} in the address go together: queue://perf.{_PLACE} over N")
        if self.receivers and self.receivers < self.destinations:
            raise ValueError(f"{self.destinations} destinations need at least as many receivers, one each")

    def _check_ways(self) -> None:
        if isinstance(self.mode, WindowMode) and self.settle is Settle.AT_MOST_ONCE:
            raise ValueError("a window counts unsettled messages, and at-most-once has none; use settle: at-least-once")
        if self.settle is Settle.EXACTLY_ONCE and self.protocol not in _EXACTLY_ONCE:
            raise ValueError(f"{self.protocol} has no exactly-once; these have: {', '.join(_EXACTLY_ONCE)}")
        if self.where.options.qos is not None and self.where.options.qos != (wanted := list(Settle).index(self.settle)):
            raise ValueError(f"qos={self.where.options.qos} says otherwise than settle: {self.settle} (qos={wanted})")
        if self.where.options.subscription is not None and self.receivers > 1:
            raise ValueError("a durable subscription has one receiver at a time; make a group for each")
        if self.buffer is not None and not self.rate:
            raise ValueError("buffer needs a rate: without one nothing waits that could be shed")
        if self.delay is not None and self.receive_rate is not None:
            raise ValueError("delay and receive_rate say the same thing twice; give one of them")
        if self.is_answered:
            self._check_answers()
        if len(self.properties) > MAX_PROPERTIES:
            raise ValueError(f"a message has at most {MAX_PROPERTIES} properties")

    def _check_answers(self) -> None:
        kind = "ping-pong" if isinstance(self.mode, PingPongMode) else "echo"
        if self.is_topic:
            raise ValueError(f"{kind} needs a queue: each receiver of a topic would answer the same message")
        if self.size.file is not None or min(size for size, _ in self.size.choices) < ECHO_BYTES:
            raise ValueError(f"{kind} needs payloads of {ECHO_BYTES} bytes or more, for the time of the answer")
        if self.failover is not None:
            raise ValueError(f"{kind} has no failover: an answer that is lost with its connection is never sent again")
        if self.senders * self.receivers > MAX_ANSWERING:
            raise ValueError(f"{kind} connects each receiver with each sender, at most {MAX_ANSWERING} times")

    @property
    def is_answered(self) -> bool:
        """Whether receivers send messages back."""
        return isinstance(self.mode, PingPongMode | EchoMode)

    def answers_to(self, sender: int) -> "Group":
        """The queue on which one sender gets its answers, as a group of its own."""
        name = self._answering(sender)
        base, mark, options = (self.where.url or "").partition("?")
        text = f"{base}/queue/{quote(name)}{mark}{options}" if base else f"queue://{name}"
        return msgspec.structs.replace(self, address=text, mode=OpenMode(), properties={}, summarize=None)

    def _answering(self, sender: int) -> str:
        return f"{self.destination}.reply.{sender}"

    def member(self, index: int) -> "Group":
        """This group as the index-th sender or receiver of it sees it: with one destination."""
        if self.destinations == 1:
            return self
        place = str(index % self.destinations)
        return msgspec.structs.replace(
            self,
            address=self.address.replace(_PLACE, place),
            failover=None if self.failover is None else [text.replace(_PLACE, place) for text in self.failover],
            destinations=1,
            receivers=min(self.receivers, 1),
        )

    def places(self, role: str) -> list[str]:
        """Where each sender, or each receiver, of this group meets the other side."""
        return [self.member(index).meeting for index in range(self.senders if role == "sender" else self.receivers)]

    @property
    def addresses(self) -> list[str]:
        return [self.address, *(self.failover or ())]

    @property
    def needs_system(self) -> bool:
        """Whether any of the addresses leaves it to the experiment where the system is."""
        return any(address_of(text).url is None for text in self.addresses)

    @property
    def where(self) -> Address:
        return address_of(self.address)

    @property
    def is_topic(self) -> bool:
        return self.where.is_topic

    @property
    def destination(self) -> str:
        """The name that goes over the wire."""
        return self.where.destination

    @property
    def meeting(self) -> str:
        """What senders and receivers of the same messages have in common: a place, and a selector where there is one.

        What a selector lets through, only who reads the messages could tell. So a group with a selector is owed what
        its own senders send, and nothing that others send to the same place.
        """
        selector = self.where.options.selector
        return self.where.node if selector is None else f"{self.where.node}?selector={selector}"

    @property
    def window(self) -> int | None:
        """How many messages of a connection may be unsettled at a time; None for as many as the system allows."""
        return self.mode.size if isinstance(self.mode, WindowMode) else None

    @property
    def unpaced(self) -> bool:
        """Whether messages come as fast as they can and nobody waits for one of them."""
        return not self.rate and self.senders > 0 and isinstance(self.mode, OpenMode)

    @property
    def consuming_ns(self) -> int:
        """How long a receiver is busy with each message."""
        return round(1e9 / self.receive_rate) if self.receive_rate else int(self.delay or 0)

    def subscription_of(self, receiver_index: int) -> str:
        """Who owes what: receivers of a queue share its messages, each receiver of a topic is owed all of them."""
        return f"{self.meeting}#{self.name}.{receiver_index}" if self.is_topic else self.meeting
