"""What load does one group of senders and receivers generate?

Values only. A group says how many connections, to which address, how large, how fast; it knows neither sockets nor
clocks.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model import protocols
from crescendo.model.address import Address, address_of, located_address
from crescendo.model.connection_timeouts import ConnectionTimeouts
from crescendo.model.name_patterns import GROUP_NAME_PATTERN
from crescendo.model.pacer import pacer_for
from crescendo.model.payload import MAX_PAYLOAD_BYTES, STAMP_BYTES, PayloadSize
from crescendo.model.protocols import MessagingProtocol, find_protocol, known_protocols, protocol_of_scheme
from crescendo.model.suggestions import choice
from crescendo.model.units import Duration
from crescendo.model.urls import parse_url

__all__ = [
    "ECHO_BYTES", "MAX_CONNECTIONS", "MAX_PAYLOAD_BYTES", "STAMP_BYTES", "EchoMode", "Group", "Mode",
    "OpenMode", "PingPongMode", "Settle", "Summarize", "WindowMode",
]  # fmt: skip

MAX_CONNECTIONS = 32_767
MAX_PROPERTIES = 32
MAX_REPLY_LINKS = 1000
_MAX_JMS_PRIORITY = 9
_INDEX = "{n}"
RUN = "{run}"
ECHO_BYTES = STAMP_BYTES + 8
"""A message that is answered reserves space for the time of the answer after its stamp."""


class Settle(StrEnum):
    """What a sender waits for before it considers a message done."""

    AT_MOST_ONCE = protocols.AT_MOST_ONCE
    AT_LEAST_ONCE = protocols.AT_LEAST_ONCE
    EXACTLY_ONCE = protocols.EXACTLY_ONCE


class OpenMode(Struct, frozen=True, tag_field="kind", tag="open", forbid_unknown_fields=True):
    """Open loop: messages are sent when they are due, regardless of earlier ones."""


class WindowMode(Struct, frozen=True, tag_field="kind", tag="window", forbid_unknown_fields=True):
    """Closed loop: at most `size` messages of a connection are unsettled at a time; the next one waits.

    With a rate, messages still have due times, and time spent waiting for the window counts as response time.
    """

    size: Annotated[int, Meta(ge=1, le=1_000_000)]


class PingPongMode(Struct, frozen=True, tag_field="kind", tag="ping-pong", forbid_unknown_fields=True):
    """One message at a time: receivers answer, and the next message of a connection waits for that answer."""


class EchoMode(Struct, frozen=True, tag_field="kind", tag="echo", forbid_unknown_fields=True):
    """Open loop, and receivers answer each message: one-way and round-trip times are both recorded."""


class Summarize(Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver counts what it receives and publishes a summary once per period."""

    to: str
    every: Duration = Duration(10**9)
    of: Literal["messages", "transfers"] = "messages"  # transfers: bytes per server in gridFTP logs

    def __post_init__(self) -> None:
        if address_of(self.to).url is not None:
            raise ValueError("to: the summary is published on the group's own system; write topic://NAME")
        if self.every < 100_000_000:
            raise ValueError("every must be at least 100ms")


Mode = OpenMode | WindowMode | PingPongMode | EchoMode


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Senders and receivers that share an address. Rate and count are per connection."""

    name: Annotated[str, Meta(pattern=GROUP_NAME_PATTERN)] = "main"
    address: str = "queue://perf"
    failover: list[str] | None = None  # further addresses; None: a lost connection stays lost
    destinations: Annotated[int, Meta(ge=1, le=MAX_CONNECTIONS)] = (
        1  # {n} in the address is replaced by 0 to destinations - 1
    )
    protocol: str = "amqp10"
    client: Literal["jms"] | None = None  # None: our own driver
    senders: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    receivers: Annotated[int, Meta(ge=0, le=MAX_CONNECTIONS)] = 1
    size: PayloadSize = PayloadSize.fixed(256)
    rate: Annotated[float, Meta(ge=0)] = 1000.0
    settle: Settle = Settle.AT_LEAST_ONCE
    mode: Mode = OpenMode()
    properties: dict[str, str] = field(default_factory=dict)  # of every message; for selectors
    buffer: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None  # messages that do not fit are shed
    connection: ConnectionTimeouts = ConnectionTimeouts()
    delay: Duration | None = None  # processing time of a receiver per message
    summarize: Summarize | None = None
    receive_rate: Annotated[float, Meta(gt=0)] | None = None  # the same, as messages per second
    purge: bool = False  # empty the destination before the run
    send_to: str | None = None  # a URL, a host, or a node of the topology
    receive_from: str | None = None

    def __post_init__(self) -> None:
        protocol = find_protocol(self.protocol)
        if protocol is None:
            raise ValueError(f"protocol {self.protocol!r} is not available; {choice(self.protocol, known_protocols())}")
        self._check_addresses()
        self._check_delivery(protocol)
        pacer_for(self.rate)  # rejects a rate out of range
        if self.senders + self.receivers == 0:
            raise ValueError("a group needs at least one sender or one receiver")
        self._check_limits(protocol)
        if self.client is not None:
            self._check_client(self.client, protocol)
        if self.size.file is None:
            self._check_largest(protocol)

    def _check_limits(self, protocol: MessagingProtocol) -> None:
        """Reject what the protocol does not have, and what exceeds it."""
        longest = protocol.max_name_characters
        for target in (self.target, *(() if self.summarize is None else (address_of(self.summarize.to),))):
            if target.is_topic and not protocol.has_topics:
                raise ValueError(f"address: {protocol.name} has queues only; write queue://{target.destination}")
            if longest is not None and len(target.destination) > longest:
                raise ValueError(f"address: a queue name of {protocol.name} has at most {longest} characters")
        if self.properties and not protocol.has_properties:
            raise ValueError(f"properties: messages of {protocol.name} have none; remove them")
        if self.connection.heartbeat is not None and not protocol.sets_heartbeat:
            able = ", ".join(name for name, other in known_protocols().items() if other.sets_heartbeat)
            raise ValueError(f"connection.heartbeat: {protocol.name} keeps its own; these can be set: {able}")
        if longest is not None and self.is_answered and len(self._reply_queue(MAX_CONNECTIONS)) > longest:
            raise ValueError(f"address: too long for {protocol.name}, because the reply queues append to this name")

    def _check_client(self, client: str, protocol: MessagingProtocol) -> None:
        """Reject what a foreign client does not do, or does by rules of its own."""
        if client not in protocol.clients:
            able = ", ".join(name for name, other in known_protocols().items() if client in other.clients)
            raise ValueError(f"client {client} does not speak {protocol.name}; it speaks {able}")
        for key, given, why in (
            ("settle", self.settle is Settle.EXACTLY_ONCE, "has no exactly-once; use at-least-once"),
            ("failover", self.failover is not None, "does not reconnect; a lost connection stays lost"),
            ("buffer", self.buffer is not None, "sheds no messages; remove it"),
            ("connection", self.connection != ConnectionTimeouts(), "makes its own connections; leave it out"),
            ("summarize", self.summarize is not None, "publishes no summaries; use another group for that"),
            ("size", self.size.file is not None, "sends no lines of a file; give a size"),
            ("temporary", bool(self.target.options.temporary), "deletes no queues; leave it out"),
            ("priority", (self.target.options.priority or 0) > _MAX_JMS_PRIORITY, "has the priorities 0 to 9"),
        ):
            if given:
                raise ValueError(f"{key}: client {client} {why}")

    def check_file(self) -> None:
        """Reject payload lines that cannot be read or sent. Reads the file, which building the group does not."""
        if self.senders and self.size.file is not None:
            _ = self.size.lines
            self._check_largest(protocols.protocol_of(self.protocol))

    def _check_largest(self, protocol: MessagingProtocol) -> None:
        limit = protocol.max_payload_bytes
        if limit is not None and self.senders and self.size.largest > limit:
            raise ValueError(
                f"size {self.size.largest} is more than {protocol.name} allows; write {STAMP_BYTES} to {limit} bytes"
            )

    def _check_addresses(self) -> None:
        nodes = {address_of(text).node for text in self.addresses}
        if len(nodes) > 1:
            raise ValueError(
                f"all addresses of a group must name one queue or topic, not {' and '.join(sorted(nodes))}"
            )
        for text in self.addresses:
            address_of(text).check(self.protocol)
        if (_INDEX in self.address) != (self.destinations > 1):
            raise ValueError(f"destinations above 1 and {_INDEX} in the address go together: queue://perf.{_INDEX}")
        if self.receivers and self.receivers < self.destinations:
            raise ValueError(f"{self.destinations} destinations need at least {self.destinations} receivers, one each")

    def _check_delivery(self, protocol: MessagingProtocol) -> None:
        if isinstance(self.mode, WindowMode) and self.settle is Settle.AT_MOST_ONCE:
            raise ValueError("a window counts unsettled messages, and at-most-once has none; use settle: at-least-once")
        if self.settle not in protocol.settle:
            able = ", ".join(name for name, other in known_protocols().items() if self.settle in other.settle)
            raise ValueError(f"{self.protocol} does not support {self.settle}; these do: {able}")
        if self.target.options.qos is not None and self.target.options.qos != (
            wanted := list(Settle).index(self.settle)
        ):
            raise ValueError(f"qos={self.target.options.qos} contradicts settle: {self.settle} (qos={wanted})")
        if self.target.options.subscription is not None and self.receivers > 1:
            raise ValueError("a durable subscription has one receiver at a time; make one group per receiver")
        if self.buffer is not None and not self.rate:
            raise ValueError("buffer needs a rate: without one no message waits, so none can be shed")
        if self.delay is not None and self.receive_rate is not None:
            raise ValueError("delay and receive_rate set the same thing; give one of them")
        if self.purge and self.is_topic and self.target.options.subscription is None:
            raise ValueError("purge: a topic holds no messages; purge is for queues and durable subscriptions")
        if self.is_answered:
            self._check_answers()
        if len(self.properties) > MAX_PROPERTIES:
            raise ValueError(f"a message has at most {MAX_PROPERTIES} properties")

    def _check_answers(self) -> None:
        kind = "ping-pong" if isinstance(self.mode, PingPongMode) else "echo"
        if self.is_topic:
            raise ValueError(f"{kind} needs a queue: each receiver of a topic would answer the same message")
        if self.size.file is not None or min(size for size, _ in self.size.choices) < ECHO_BYTES:
            raise ValueError(f"{kind} needs payloads of {ECHO_BYTES} bytes or more, to carry the time of the answer")
        if self.failover is not None:
            raise ValueError(f"{kind} does not support failover: answers lost with a connection are not sent again")
        if self.senders * self.receivers > MAX_REPLY_LINKS:
            raise ValueError(f"{kind} connects each receiver to each sender; at most {MAX_REPLY_LINKS} such pairs")

    @property
    def is_answered(self) -> bool:
        """Whether receivers send messages back."""
        return isinstance(self.mode, PingPongMode | EchoMode)

    def reply_group(self, sender: int) -> "Group":
        """A group for the queue on which one sender receives its answers."""
        name = self._reply_queue(sender)
        base, mark, options = (self.target.url or "").partition("?")
        text = f"{base}/queue/{quote(name)}{mark}{options}" if base else f"queue://{name}"
        return msgspec.structs.replace(self, address=text, mode=OpenMode(), properties={}, summarize=None)

    def _reply_queue(self, sender: int) -> str:
        return f"{self.destination}.reply.{sender}"

    def for_run(self, run: str) -> "Group":
        """This group as one run carries it out: with addresses that no other run has, where they contain {run}."""
        return msgspec.structs.replace(
            self,
            address=self.address.replace(RUN, run),
            failover=None if self.failover is None else [text.replace(RUN, run) for text in self.failover],
            summarize=self.summarize
            and msgspec.structs.replace(self.summarize, to=self.summarize.to.replace(RUN, run)),
        )

    @property
    def is_unique(self) -> bool:
        """Whether every run has a destination of its own."""
        return RUN in self.address

    def member(self, index: int) -> "Group":
        """This group as its index-th sender or receiver sees it: with one destination."""
        if self.destinations == 1:
            return self
        number = str(index % self.destinations)
        return msgspec.structs.replace(
            self,
            address=self.address.replace(_INDEX, number),
            failover=None if self.failover is None else [text.replace(_INDEX, number) for text in self.failover],
            destinations=1,
            receivers=min(self.receivers, 1),
        )

    def shared_addresses(self, role: str) -> list[str]:
        """The shared address of each sender, or each receiver, of this group."""
        return [
            self.member(index).shared_address for index in range(self.senders if role == "sender" else self.receivers)
        ]

    @property
    def addresses(self) -> list[str]:
        return [self.address, *(self.failover or ())]

    @property
    def needs_system(self) -> bool:
        """Whether any of the addresses relies on the experiment to name the system."""
        return any(address_of(text).url is None for text in self.addresses)

    def place_of(self, role: str) -> str | None:
        """Where its senders, or its receivers, connect to; None: to the experiment's system."""
        return self.send_to if role == "sender" else self.receive_from

    def spoken_by(self, role: str) -> str:
        """The protocol of its senders, or of its receivers: that of the URL which only they are given."""
        place = self.place_of(role) or ""
        spoken = protocol_of_scheme(parse_url(place).scheme) if "://" in place else None
        return self.protocol if spoken is None else spoken.name

    def connections_of(self, role: str) -> int:
        return self.senders if role == "sender" else self.receivers

    def located_at(self, url: str, called: Mapping[str, str] | None = None) -> "Group":
        """The same group at the system of this URL, in the protocol of the URL; `called`: what it calls some queues."""
        spoken = protocol_of_scheme(parse_url(url).scheme)
        return msgspec.structs.replace(
            self,
            protocol=self.protocol if spoken is None else spoken.name,
            address=located_address(self.address, url, called),
            failover=self.failover and [located_address(text, url, called) for text in self.failover],
            send_to=None,
            receive_from=None,
        )

    @property
    def target(self) -> Address:
        return address_of(self.address)

    @property
    def is_topic(self) -> bool:
        return self.target.is_topic

    @property
    def destination(self) -> str:
        """The name as sent over the wire."""
        return self.target.destination

    @property
    def shared_address(self) -> str:
        """The address that senders and receivers of the same messages share: the node, plus the selector if any.

        Only the broker knows which messages a selector matches. So the receivers of a group with a selector are owed
        what the group's own senders send, and nothing that others send to the same node.
        """
        selector = self.target.options.selector
        return self.target.node if selector is None else f"{self.target.node}?selector={selector}"

    @property
    def window(self) -> int | None:
        """How many messages of a connection may be unsettled at a time; None: as many as the system allows."""
        return self.mode.size if isinstance(self.mode, WindowMode) else None

    @property
    def unpaced(self) -> bool:
        """Whether messages are sent as fast as possible, without a rate and without waiting for settlements."""
        return not self.rate and self.senders > 0 and isinstance(self.mode, OpenMode)

    @property
    def consuming_ns(self) -> int:
        """How long a receiver is busy with each message."""
        return round(1e9 / self.receive_rate) if self.receive_rate else int(self.delay or 0)

    def subscription_of(self, receiver_index: int) -> str:
        """Receivers of a queue share one subscription; each receiver of a topic has its own, owed every message."""
        return f"{self.shared_address}#{self.name}.{receiver_index}" if self.is_topic else self.shared_address
