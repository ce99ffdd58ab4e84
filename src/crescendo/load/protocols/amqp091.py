"""How does the load engine speak AMQP 0-9-1?

A socket, a sans-IO connection and one channel on it. `queue://x` is the queue x behind the default exchange, declared
durable if it does not exist; `topic://x` is the routing key x on amq.topic, and each receiver has a queue of its own
there. Senders that wait for outcomes use publisher confirms and mandatory messages, so that a vanished queue shows as
released messages, not as accepted ones. A protocol violation by the system closes this channel, with its reason.
"""

import itertools
import os
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator

import numpy as np

from crescendo.load.protocols.base_channel import UNLIMITED, BaseChannel, BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.model.errors import ConfigError
from crescendo.model.workload import STAMP_BYTES, Group
from crescendo.record.schema import Settlement
from crescendo.wire.amqp091.batch import PublishBatch
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.events import (
    ChannelClosed,
    ChannelOpened,
    Closed,
    Confirmed,
    Deliveries,
    Event,
    MethodReceived,
    Opened,
    Refused,
    Returned,
)
from crescendo.wire.amqp091.handshake import Limits, plain
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    ChannelFlow,
    ConfirmSelect,
    Method,
    QueueBind,
    QueueDeclare,
)
from crescendo.wire.amqp091.properties import PERSISTENT, TRANSIENT, Properties
from crescendo.wire.amqp091.types import MAX_SHORT_STRING_BYTES
from crescendo.wire.stamp import MAGIC, ONE_STAMP

HEARTBEAT_S = 10
PREFETCH = 4000
ACK_EVERY = 256
"""Some brokers send a few messages per write; acknowledging each read would cost more than the read."""
MAX_UNCONFIRMED = 65_536
"""A sender without this bound could fill the system's memory with unconfirmed messages."""

TOPIC_EXCHANGE = "amq.topic"
_CHANNEL = 1
_MISSED_HEARTBEATS = 2  # the specification: a peer is gone after two intervals without a heartbeat
_ACCESS_REFUSED, _NOT_FOUND = 403, 404
_connection_numbers = itertools.count()


class _Link(BaseChannel):
    """One connection with one channel, in either direction."""

    _connection: Connection
    _close_reply = Closed  # a server ends its channels first, which have processed every acknowledgement by then

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        if len(group.destination.encode()) > MAX_SHORT_STRING_BYTES:
            raise ConfigError(f"AMQP 0-9-1 names have at most {MAX_SHORT_STRING_BYTES} bytes: {group.destination!r}")
        super().__init__(url, group, batching=batching)
        self._queue_missing = False
        self._setup_steps: deque[Method] = deque()

    def _connect(self) -> None:
        self._dial(
            Connection(
                virtual_host=self._path or "/",
                sign_in=None if self._user is None else plain(self._user, self._password),
                limits=Limits(heartbeat_s=self._group.connection.heartbeat_ms(HEARTBEAT_S * 1000) // 1000),
                name=f"crescendo-{os.getpid()}-{next(_connection_numbers)}",
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.close()

    def _idle_timeout_ns(self) -> int:
        return _MISSED_HEARTBEATS * self._interval_ns()

    def _heartbeat_interval_ns(self) -> int:
        return self._interval_ns() // 2

    def _interval_ns(self) -> int:
        return int(self._connection.limits.heartbeat_s) * 10**9

    def _end_of_stream_reason(self) -> str:
        silent = "" if self._connection.protocol_agreed else " without a reply; does it speak AMQP 0-9-1?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        match event:
            case Opened():
                self._connection.open_channel(_CHANNEL)
            case ChannelOpened():
                self._setup_steps = deque(self._setup_methods())
                self._next_setup_step()
            case ChannelClosed(code=code) if code == _NOT_FOUND and not self._queue_missing and self._setup_steps:
                # During setup only the passive declare can fail with this: the queue is missing, and we declare it.
                self._queue_missing = True
                self._connection.open_channel(_CHANNEL)
            case ChannelClosed(code=code, reason=reason):
                self._fail(f"the system closed the channel: {reason or 'no reason given'} ({code})")
            case Closed(code=code, reason=reason):
                cure = "; are user and password right?" if code == _ACCESS_REFUSED and not self.ready else ""
                self._fail(f"the system closed the connection: {reason or 'no reason given'} ({code}){cure}")
            case Refused(reason=reason):
                self._fail(reason)
            case MethodReceived(method=BasicCancel()):
                self._fail(f"the system cancelled the consumer of {self._group.destination!r}: is the queue gone?")
            case MethodReceived(method=ChannelFlow() | BasicConsumeOk()):
                pass
            case MethodReceived():
                self._setup_steps.popleft()
                self._next_setup_step()
            case _:
                return False
        return True

    def _next_setup_step(self) -> None:
        """Send the next setup method; ready when none is left."""
        if not self._setup_steps:
            self.ready = True
        elif isinstance(self._setup_steps[0], ConfirmSelect):
            self._connection.select_confirms(_CHANNEL)
        else:
            self._connection.send(_CHANNEL, self._setup_steps[0])

    def _declare(self) -> QueueDeclare:
        """Use the queue as it is; declare it durable if it does not exist.

        A temporary one is declared at once: Broker-J may create a lasting queue when it is only asked for one.
        """
        queue, options = self._group.destination, self._group.target.options
        if not self._queue_missing and not options.temporary:
            return QueueDeclare(queue=queue, passive=True)
        arguments = {} if options.priority is None else {"x-max-priority": options.priority}
        durable = options.durable is not False and not options.temporary
        return QueueDeclare(queue=queue, durable=durable, auto_delete=bool(options.temporary), arguments=arguments)

    @abstractmethod
    def _setup_methods(self) -> list[Method]:
        """The methods to be sent before the first message, in this order."""


def exchange_of(group: Group) -> str:
    return (group.target.options.exchange or TOPIC_EXCHANGE) if group.is_topic else ""


def properties_of(group: Group) -> Properties:
    options = group.target.options
    return Properties(
        headers=dict(group.properties) or None,
        delivery_mode=None if options.durable is None else PERSISTENT if options.durable else TRANSIENT,
        priority=options.priority,
        expiration=None if options.ttl is None else str(options.ttl // 1_000_000),
    )


class Amqp091Sender(BaseSendChannel, _Link):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._returned: set[int] = set()
        self.resize(self._size)
        self._connect()

    def room(self) -> int:
        connection = self._connection
        if not self._is_writable or not connection.publishable(_CHANNEL):
            return 0
        return max(min(self.capacity, MAX_UNCONFIRMED - connection.unconfirmed(_CHANNEL)), 0)

    def _new_batch(self, size: int) -> PublishBatch:
        return PublishBatch(
            exchange=exchange_of(self._group),
            routing_key=self._group.destination,
            body_length=size,
            channel=_CHANNEL,
            mandatory=self._waits_for_outcomes and not self._group.is_topic,
            properties=properties_of(self._group),
        )

    def _fits_a_frame(self) -> bool:
        return bool(self._batch.largest_frame <= self._connection.limits.frame_max)

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.publish_batch(self._batch, count)

    def _prepare(self, count: int, position: int) -> memoryview:
        frames: memoryview = self._batch.frames(count)
        return frames

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        self._connection.published(self._batch, len(sent_ns))

    def _send_one(self, body: bytes, position: int) -> None:
        self._connection.publish(_CHANNEL, self._batch.method, body, self._batch.properties)

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            match event:
                case Confirmed(ranges=ranges, accepted=accepted):
                    settlement = Settlement.ACCEPTED if accepted else Settlement.REJECTED
                    for outcome in self._settled_ranges(((first - 1, last - 1) for first, last in ranges), settlement):
                        outcomes += self._without_returned(outcome)
                case Returned(body=body):
                    outcomes += self._release_returned(body)
        return outcomes

    def _without_returned(self, confirmed: SettledMessages) -> list[SettledMessages]:
        """The confirmed messages except those that were returned before."""
        if not self._returned:
            return [confirmed]
        returned = self._returned.intersection(confirmed.seqs)
        self._returned -= returned
        kept = np.array([seq for seq in confirmed.seqs if seq not in returned], np.int64)
        return [SettledMessages(kept, confirmed.settlement)] if len(kept) else []

    def _release_returned(self, body: bytes) -> list[SettledMessages]:
        """A message that was routed to no queue. The confirm that follows it is ignored."""
        magic, _, _, seq, _, _ = ONE_STAMP.unpack_from(body) if len(body) >= STAMP_BYTES else (0,) * 6
        if magic != MAGIC or not self._sequence_map.includes(seq):
            self._fail("the system returned a message that we did not send")
            return []
        self._returned.add(seq)
        return [SettledMessages(range(seq, seq + 1), Settlement.RELEASED)]

    def _setup_methods(self) -> list[Method]:
        steps: list[Method] = [] if self._group.is_topic else [self._declare()]
        return [*steps, ConfirmSelect()] if self._waits_for_outcomes else steps


class Amqp091Receiver(_Link):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._queue = "" if group.is_topic else group.destination  # "": the queue declared last on this channel
        self._ack = group.target.options.ack or ("multiple" if self._waits_for_outcomes else "none")
        self._unacked: list[int] = []
        self._prefetch = prefetch_of(group, PREFETCH)
        self.window = UNLIMITED if self._ack == "none" else self._prefetch
        self._last_tag = 0  # handed out to the engine
        self._done_tag = 0  # consumed
        self._acked_tag = 0  # acknowledged
        self._connect()

    def begin(self) -> None:
        self._connection.send(_CHANNEL, BasicConsume(queue=self._queue, no_ack=self._ack == "none"))
        self.flush()

    def pump(self) -> Iterator[ReceivedMessages]:
        for event in self._events():
            if isinstance(event, Deliveries):
                yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
                self._last_tag = int(event.tags[-1])
                if self._ack == "individual":
                    self._unacked += event.tags.tolist()

    def settle(self) -> None:
        self._done_tag = self._last_tag
        if self._done_tag - self._acked_tag >= min(ACK_EVERY, max(self._prefetch // 2, 1)):
            self._acknowledge()

    def keep_alive(self, now_ns: int) -> None:
        self._acknowledge()
        super().keep_alive(now_ns)

    def start_close(self) -> None:
        self._acknowledge()
        super().start_close()

    def _acknowledge(self) -> None:
        """Acknowledge all consumed messages: together, or one by one if the address asks for that."""
        if self._ack == "none" or self._done_tag == self._acked_tag or self.closed is not None:
            return
        if self._ack == "individual":
            for tag in self._unacked:
                self._connection.send(_CHANNEL, BasicAck(tag))
            self._unacked.clear()
        else:
            self._connection.send(_CHANNEL, BasicAck(self._done_tag, multiple=True))
        self._acked_tag = self._done_tag
        self.flush()

    def _setup_methods(self) -> list[Method]:
        steps: list[Method] = [self._declare()]
        if self._group.is_topic:
            steps = [
                QueueDeclare(exclusive=True, auto_delete=True),
                QueueBind(exchange=exchange_of(self._group), routing_key=self._group.destination),
            ]
        return [*steps, BasicQos(prefetch_count=self._prefetch)] if self._ack != "none" else steps
