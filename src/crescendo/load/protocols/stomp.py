"""How does the load engine speak STOMP?

A socket, a sans-IO connection and one destination make a channel. At-least-once senders ask for a receipt of every
message, under its sequence number; receivers acknowledge once a read, up to the last message. Everything the other side
does wrong ends this channel with its own words and no other one.
"""

import time
from collections.abc import Iterator

import numpy as np

from crescendo.load.protocols.base_channel import UNLIMITED, BaseChannel, BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group
from crescendo.record.schema import Settlement
from crescendo.wire.stomp.batch import SendBatch, receipt_id
from crescendo.wire.stomp.commands import Ack, BrokerDialect, durable
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, Receipts
from crescendo.wire.stomp.handshake import Heartbeats

DEFAULT_VIRTUAL_HOST = "/"  # RabbitMQ takes the host header for one of its virtual hosts; the others do not look
HEARTBEAT_MS = 10_000
PREFETCH = 4000
UNSETTLED = 65_536
"""STOMP has no credit. Without a bound of ours a broker that reads quickly and stores slowly would fill our memory."""

QUEUE_PREFIX, TOPIC_PREFIX = "/queue/", "/topic/"
_PATIENCE = 3  # a heart-beat may be late, and ActiveMQ's first comes two intervals after CONNECTED
_SUBSCRIPTION = "0"
_SUBSCRIBED = "subscribed"
_WINDOW_BYTES = 1 << 20
_BROKERS = {"artemis": BrokerDialect.ARTEMIS, "activemq": BrokerDialect.ACTIVEMQ, "rabbitmq": BrokerDialect.RABBITMQ}
"""A word in the name that a server gives itself -> how to ask it for a durable subscription. Artemis has two."""


def destination_of(group: Group) -> str:
    """What a group's address is called in STOMP. Brokers must be configured to read these prefixes so."""
    return (TOPIC_PREFIX if group.is_topic else QUEUE_PREFIX) + group.destination


class _Channel(BaseChannel):
    """One connection, either way."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        super().__init__(url, group, batching=batching)
        self._destination = destination_of(group)
        self._server = ""

    def _call(self) -> None:
        self._dial(
            Connection(
                host=self._path or DEFAULT_VIRTUAL_HOST,
                login=self._user,
                passcode=None if self._user is None else self._password,
                heartbeats=Heartbeats(HEARTBEAT_MS, HEARTBEAT_MS),
                client_id=None if self._lasting is None else f"crescendo-{self._lasting}",
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.disconnect()

    def _idle_timeout_ns(self) -> int:
        agreement = self._connection.agreement
        return _PATIENCE * agreement.expect_every_ms * 1_000_000 if agreement else 0

    def _heartbeat_interval_ns(self) -> int:
        agreement = self._connection.agreement
        return agreement.send_every_ms * 1_000_000 // 2 if agreement else 0

    def _hung_up(self) -> str:
        # ActiveMQ Classic refuses a wrong password with an ERROR frame, but sometimes closes before it has left.
        silent = "" if self._connection.agreement else " without a word; are user and password right?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        if isinstance(event, Failed):
            self._fail(f"the system refused: {event.reason}")
            return True
        return False


class StompSender(BaseSendChannel, _Channel):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._version = Version.V1_2
        self._settled = 0
        self.resize(self._size)
        self._call()

    def room(self) -> int:
        if not self._clear:
            return 0
        if not self._waits_for_outcomes:
            return self.capacity
        return max(min(self.capacity, UNSETTLED - (self._numbering.count - self._settled)), 0)

    def _new_batch(self, size: int) -> SendBatch:
        options = self._group.target.options
        return SendBatch(
            self._destination,
            body_length=size,
            receipts=self._waits_for_outcomes,
            version=self._version,
            persistent=bool(options.durable),
            priority=options.priority,
            more=self._more,
        )

    @property
    def _more(self) -> dict[str, str]:
        """Headers that are no part of STOMP: the group's properties, and how RabbitMQ is told a time to live."""
        ttl = self._group.target.options.ttl
        relative = {"expiration": str(ttl // 1_000_000)} if ttl is not None and self._is_rabbitmq else {}
        return dict(self._group.properties) | relative

    @property
    def _is_rabbitmq(self) -> bool:
        return self._server.startswith("RabbitMQ")

    def _fits_a_frame(self) -> bool:
        # Elsewhere a time to live is an absolute time, which no batch can be made with beforehand.
        return self._group.target.options.ttl is None or self._is_rabbitmq

    def _send_batch(self, count: int, place: int) -> None:
        self._connection.send_batch(self._batch, place, count)

    def _prepare(self, count: int, place: int) -> memoryview:
        frames: memoryview = self._batch.frames(place, count)
        return frames

    def _send_one(self, body: bytes, place: int) -> None:
        receipt = receipt_id(place) if self._waits_for_outcomes else None
        options = self._group.target.options
        absolute = None if options.ttl is None or self._is_rabbitmq else options.ttl // 1_000_000
        self._connection.send(
            self._destination,
            body,
            persistent=bool(options.durable),
            priority=options.priority,
            ttl_ms=absolute,
            now_ms=None if absolute is None else time.time_ns() // 1_000_000,
            receipt=receipt,
            more=self._more,
        )

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            match event:
                case Connected(agreement=agreement, server=server):
                    self._version, self._server = agreement.version, server
                    self._batches.clear()  # it may escape the destination in another way, or want other headers
                    self.resize(self._size)
                    self.ready = True
                case Receipts():
                    try:
                        outcomes += self._receipted(event)
                    except PeerError as err:
                        self._fail(str(err))
                case _:
                    self._fail("the system sent a message to a sender")
        self.flush()
        return outcomes

    def _receipted(self, receipts: Receipts) -> list[SettledMessages]:
        numbers = receipts.numbers
        if numbers is None:
            numbers = np.array([self._number(receipt) for receipt in receipts.ids], np.int64)
        elif numbers.max() >= self._numbering.count:
            raise PeerError(f"a receipt {int(numbers.max())} that nobody asked for")
        self._settled += len(numbers)
        return [self._outcome_at(numbers, Settlement.ACCEPTED)]

    def _number(self, receipt: str) -> int:
        if not (
            receipt.isascii() and receipt.isdigit() and len(receipt) <= 18 and int(receipt) < self._numbering.count
        ):
            raise PeerError(f"a receipt {receipt[:40]!r} that nobody asked for")
        return int(receipt)


class StompReceiver(_Channel):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._subscribed = False
        self._begun = False
        default = Ack.CLIENT if self._waits_for_outcomes else Ack.AUTO
        self._ack = Ack(group.target.options.ack or default)
        in_bytes = _WINDOW_BYTES // int(group.size)  # which is how Artemis counts
        self.window = UNLIMITED if self._ack is Ack.AUTO else min(prefetch_of(group, PREFETCH), in_bytes)
        self._unacked: list[str] = []  # the last of these stands for all, unless each is acknowledged by itself
        self._call()

    def begin(self) -> None:
        self._begun = True

    def pump(self) -> Iterator[ReceivedMessages]:
        if not self._begun:
            self._become_ready()
            return
        for event in self._events():
            if isinstance(event, Deliveries):
                yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
                if self._ack is not Ack.AUTO:
                    self._unacked += event.ids if self._ack is Ack.CLIENT_INDIVIDUAL else event.ids[-1:]

    def settle(self) -> None:
        if self.closed is None:
            for delivery in self._unacked if self._ack is Ack.CLIENT_INDIVIDUAL else self._unacked[-1:]:
                self._connection.ack(_SUBSCRIPTION, delivery)
        self._unacked.clear()
        self.flush()

    def _become_ready(self) -> None:
        """Subscribe, and leave messages where they are.

        STOMP has no credit: messages may follow at once, before or behind the receipt, and nobody records them yet.
        So what comes after the subscription is read byte by byte, up to the receipt or into the first message. The
        rest waits in the socket, and wakes the engine when that begins.
        """
        if not self._subscribed:
            for event in self._events():
                if isinstance(event, Connected):
                    self._subscribed = True
                    self._subscribe(event.server)
            self.flush()
        waiting = self._subscribed
        while waiting and not self.ready and self.closed is None:
            before_ns = self.read_ns
            for event in self._events(limit=1):
                self.ready = isinstance(event, Receipts)
            self.ready = self.closed is None and (self.ready or self._connection.begins_with_message)
            waiting = self.read_ns != before_ns

    def _subscribe(self, server: str) -> None:
        options = self._group.target.options
        prefetch = str(prefetch_of(self._group, PREFETCH))
        more = {"prefetch-count": prefetch, "activemq.prefetchSize": prefetch}
        # Artemis counts bytes: its window reopens when messages are acknowledged, so auto must have none.
        window = "-1" if self._ack is Ack.AUTO else str(_WINDOW_BYTES)
        if self._group.consuming_ns or options.prefetch is not None:
            window = str(int(prefetch) * int(self._group.size))
        more["consumer-window-size"] = window
        if options.selector is not None and server.startswith("RabbitMQ"):
            self._fail("RabbitMQ has no selectors over STOMP: it would send everything; leave the selector out")
            return
        if options.subscription is not None:
            kind = next((kind for word, kind in _BROKERS.items() if word in server.lower()), None)
            if kind is None:
                self._fail(f"nobody knows how to ask {server or 'this system'} for a durable subscription over STOMP")
                return
            more |= durable(kind, options.subscription)
        self._connection.subscribe(
            _SUBSCRIPTION,
            self._destination,
            self._ack,
            selector=options.selector,
            receipt=_SUBSCRIBED,
            more=more,
        )
