"""How does the load engine speak STOMP?

A socket, a sans-IO connection and one destination make a channel. At-least-once senders request a receipt for every
message, numbered by its position; receivers acknowledge once per read, up to the last message. A protocol violation by
the system closes this channel, with its reason, and no other one.
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
from crescendo.wire.stomp.client_frames import Ack, BrokerDialect, durable
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, Receipts
from crescendo.wire.stomp.handshake import Heartbeats

DEFAULT_VIRTUAL_HOST = "/"  # RabbitMQ reads the host header as a virtual host; others ignore it
HEARTBEAT_MS = 10_000
PREFETCH = 4000
MAX_UNSETTLED = 65_536
"""STOMP has no credit. Without this bound a broker that reads fast and stores slowly would fill our memory."""

QUEUE_PREFIX, TOPIC_PREFIX = "/queue/", "/topic/"
DECLARED_PREFIX = "/amq/queue/"
"""RabbitMQ's prefix of queues that a sender uses as they are, instead of declaring them."""
_MISSED_HEARTBEATS = 3  # a heart-beat may be late, and ActiveMQ sends its first two intervals after CONNECTED
_SUBSCRIPTION = "0"
_SUBSCRIBED = "subscribed"
_WINDOW_BYTES = 1 << 20
_DIALECTS = {"artemis": BrokerDialect.ARTEMIS, "activemq": BrokerDialect.ACTIVEMQ, "rabbitmq": BrokerDialect.RABBITMQ}
"""Part of the server header -> how to request a durable subscription. Artemis matches two; the first one wins."""


def destination_of(group: Group) -> str:
    """The STOMP destination of a group's address. Brokers must be configured to use these prefixes."""
    if group.destination.startswith(DECLARED_PREFIX):
        return group.destination
    return (TOPIC_PREFIX if group.is_topic else QUEUE_PREFIX) + group.destination


class _Channel(BaseChannel):
    """One connection, in either direction."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        super().__init__(url, group, batching=batching)
        self._destination = destination_of(group)
        self._server = ""

    def _connect(self) -> None:
        heartbeat_ms = self._group.connection.heartbeat_ms(HEARTBEAT_MS)
        self._dial(
            Connection(
                host=self._path or DEFAULT_VIRTUAL_HOST,
                login=self._user,
                passcode=None if self._user is None else self._password,
                heartbeats=Heartbeats(heartbeat_ms, heartbeat_ms),
                client_id=None if self._subscription_name is None else f"crescendo-{self._subscription_name}",
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.disconnect()

    def _idle_timeout_ns(self) -> int:
        agreement = self._connection.agreement
        return _MISSED_HEARTBEATS * agreement.expect_every_ms * 1_000_000 if agreement else 0

    def _heartbeat_interval_ns(self) -> int:
        agreement = self._connection.agreement
        return agreement.send_every_ms * 1_000_000 // 2 if agreement else 0

    def _end_of_stream_reason(self) -> str:
        # ActiveMQ Classic refuses a wrong password with an ERROR frame, but sometimes closes before it is sent.
        silent = "" if self._connection.agreement else " without a reply; are user and password right?"
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
        self._connect()

    def room(self) -> int:
        if not self._is_writable:
            return 0
        if not self._waits_for_outcomes:
            return self.capacity
        return max(min(self.capacity, MAX_UNSETTLED - (self._sequence_map.count - self._settled)), 0)

    def _new_batch(self, size: int) -> SendBatch:
        options = self._group.target.options
        return SendBatch(
            self._destination,
            body_length=size,
            receipts=self._waits_for_outcomes,
            version=self._version,
            persistent=bool(options.durable),
            priority=options.priority,
            more=self._extra_headers,
        )

    @property
    def _extra_headers(self) -> dict[str, str]:
        """Headers outside STOMP: the group's properties, and RabbitMQ's header for a time to live."""
        ttl = self._group.target.options.ttl
        relative = {"expiration": str(ttl // 1_000_000)} if ttl is not None and self._is_rabbitmq else {}
        return dict(self._group.properties) | relative

    @property
    def _is_rabbitmq(self) -> bool:
        return self._server.startswith("RabbitMQ")

    def _fits_a_frame(self) -> bool:
        # Other brokers take an absolute expiry time, which a batch cannot contain ahead of time.
        return self._group.target.options.ttl is None or self._is_rabbitmq

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.send_batch(self._batch, position, count)

    def _prepare(self, count: int, position: int) -> memoryview:
        frames: memoryview = self._batch.frames(position, count)
        return frames

    def _send_one(self, body: bytes, position: int) -> None:
        receipt = receipt_id(position) if self._waits_for_outcomes else None
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
            more=self._extra_headers,
        )

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            match event:
                case Connected(agreement=agreement, server=server):
                    self._version, self._server = agreement.version, server
                    if self._group.target.options.temporary and self._is_rabbitmq:
                        self._destination = DECLARED_PREFIX + self._group.destination  # receivers declared it
                    self._batches.clear()  # this version may escape the destination differently, or need other headers
                    self.resize(self._size)
                    self.ready = True
                case Receipts():
                    try:
                        outcomes += self._settled_by_receipts(event)
                    except PeerError as err:
                        self._fail(str(err))
                case _:
                    self._fail("the system sent a message to a sender")
        self.flush()
        return outcomes

    def _settled_by_receipts(self, receipts: Receipts) -> list[SettledMessages]:
        numbers = receipts.numbers
        if numbers is None:
            numbers = np.array([self._number(receipt) for receipt in receipts.ids], np.int64)
        elif numbers.max() >= self._sequence_map.count:
            raise PeerError(f"a receipt {int(numbers.max())} that we did not request")
        self._settled += len(numbers)
        return [self._settled_positions(numbers, Settlement.ACCEPTED)]

    def _number(self, receipt: str) -> int:
        if not (
            receipt.isascii() and receipt.isdigit() and len(receipt) <= 18 and int(receipt) < self._sequence_map.count
        ):
            raise PeerError(f"a receipt {receipt[:40]!r} that we did not request")
        return int(receipt)


class StompReceiver(_Channel):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._subscribed = False
        self._begun = False
        default = Ack.CLIENT if self._waits_for_outcomes else Ack.AUTO
        self._ack = Ack(group.target.options.ack or default)
        in_bytes = _WINDOW_BYTES // int(group.size)  # Artemis counts its window in bytes
        self.window = UNLIMITED if self._ack is Ack.AUTO else min(prefetch_of(group, PREFETCH), in_bytes)
        self._unacked: list[str] = []  # acknowledging the last covers all, unless the mode is individual
        self._connect()

    def begin(self) -> None:
        self._begun = True

    def pump(self) -> Iterator[ReceivedMessages]:
        if not self._begun:
            self._await_subscription()
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

    def _await_subscription(self) -> None:
        """Subscribe, and leave messages in the socket.

        STOMP has no credit: messages may follow at once, before or after the receipt, and the engine does not record
        yet. So after the subscription we read byte by byte, up to the receipt or into the first message. The rest
        waits in the socket, and wakes the engine when it starts.
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
        # Artemis counts bytes: its window reopens only with acknowledgements, so auto must have no window.
        window = "-1" if self._ack is Ack.AUTO else str(_WINDOW_BYTES)
        if self._group.consuming_ns or options.prefetch is not None:
            window = str(int(prefetch) * int(self._group.size))
        more["consumer-window-size"] = window
        if options.selector is not None and server.startswith("RabbitMQ"):
            self._fail("RabbitMQ has no selectors over STOMP: it would send everything; leave the selector out")
            return
        if options.temporary:
            if not server.startswith("RabbitMQ"):
                self._fail(
                    f"temporary queues over STOMP are not supported with {server or 'this system'}; leave it out"
                )
                return
            more |= {"auto-delete": "true", "durable": "false", "exclusive": "false"}
        if options.subscription is not None:
            dialect = next((dialect for name, dialect in _DIALECTS.items() if name in server.lower()), None)
            if dialect is None:
                self._fail(f"durable subscriptions over STOMP are not supported with {server or 'this system'}")
                return
            more |= durable(dialect, options.subscription)
        self._connection.subscribe(
            _SUBSCRIPTION,
            self._destination,
            self._ack,
            selector=options.selector,
            receipt=_SUBSCRIBED,
            more=more,
        )
