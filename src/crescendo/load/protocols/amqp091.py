"""How does the load engine speak AMQP 0-9-1?

A socket, a sans-IO connection and one channel on it. `queue://x` is the queue x behind the default exchange, declared
durable where it does not exist; `topic://x` is the routing key x on amq.topic, and each receiver has a queue of its own
there. Senders that wait for outcomes use publisher confirms and mandatory messages, so that a vanished queue shows as
released messages, not as accepted ones. Everything the other side does wrong ends this channel with its own words.
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
"""Some brokers send a few messages a write; an answer to each read would cost more than reading it."""
MAX_UNCONFIRMED = 65_536
"""A sender that is never held back would fill the system's memory with messages that nobody has confirmed."""

TOPIC_EXCHANGE = "amq.topic"
_CHANNEL = 1
_PATIENCE = 2  # the specification: a peer is gone after two intervals without a sign of life
_NOT_FOUND = 404
_numbers = itertools.count()


class _Link(BaseChannel):
    """One connection with one channel, either way."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        if len(group.destination.encode()) > MAX_SHORT_STRING_BYTES:
            raise ConfigError(f"AMQP 0-9-1 names have at most {MAX_SHORT_STRING_BYTES} bytes: {group.destination!r}")
        super().__init__(url, group, batching=batching)
        self._absent = False
        self._steps: deque[Method] = deque()

    def _call(self) -> None:
        self._dial(
            Connection(
                virtual_host=self._path or "/",
                sign_in=None if self._user is None else plain(self._user, self._password),
                limits=Limits(heartbeat_s=HEARTBEAT_S),
                name=f"crescendo-{os.getpid()}-{next(_numbers)}",
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.close()

    def _idle_timeout_ns(self) -> int:
        return _PATIENCE * self._interval_ns()

    def _heartbeat_interval_ns(self) -> int:
        return self._interval_ns() // 2

    def _interval_ns(self) -> int:
        return int(self._connection.limits.heartbeat_s) * 10**9

    def _hung_up(self) -> str:
        silent = "" if self._connection.protocol_agreed else " without a word; does it speak AMQP 0-9-1?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        match event:
            case Opened():
                self._connection.open_channel(_CHANNEL)
            case ChannelOpened():
                self._steps = deque(self._preparation())
                self._step()
            case ChannelClosed(code=code) if code == _NOT_FOUND and not self._absent and self._steps:
                # Only asking whether the queue exists can fail so before we are ready; then it is ours to declare.
                self._absent = True
                self._connection.open_channel(_CHANNEL)
            case ChannelClosed(code=code, reason=reason):
                self._fail(f"the system closed the channel: {reason or 'no reason given'} ({code})")
            case Closed(code=code, reason=reason):
                self._fail(f"the system closed the connection: {reason or 'no reason given'} ({code})")
            case Refused(reason=reason):
                self._fail(reason)
            case MethodReceived(method=BasicCancel()):
                self._fail(f"the system cancelled the consumer of {self._group.destination!r}: is the queue gone?")
            case MethodReceived(method=ChannelFlow() | BasicConsumeOk()):
                pass
            case MethodReceived():
                self._steps.popleft()
                self._step()
            case _:
                return False
        return True

    def _step(self) -> None:
        """Ask for the next thing that must be in place; ready when nothing is left."""
        if not self._steps:
            self.ready = True
        elif isinstance(self._steps[0], ConfirmSelect):
            self._connection.select_confirms(_CHANNEL)
        else:
            self._connection.send(_CHANNEL, self._steps[0])

    def _declare(self) -> QueueDeclare:
        """Take the queue as it is; durable where it has to be made."""
        queue, options = self._group.destination, self._group.target.options
        if not self._absent:
            return QueueDeclare(queue=queue, passive=True)
        ranks = {} if options.priority is None else {"x-max-priority": options.priority}
        return QueueDeclare(queue=queue, durable=options.durable is not False, arguments=ranks)

    @abstractmethod
    def _preparation(self) -> list[Method]:
        """What must be in place before the first message, in this order."""


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

    _answer = Closed

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._returned: set[int] = set()
        self.resize(self._size)
        self._call()

    def room(self) -> int:
        connection = self._connection
        if not self._clear or not connection.publishable(_CHANNEL):
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

    def _send_batch(self, count: int, place: int) -> None:
        self._connection.publish_batch(self._batch, count)

    def _prepare(self, count: int, place: int) -> memoryview:
        frames: memoryview = self._batch.frames(count)
        return frames

    def _depart(self, place: int, sent_ns: list[int]) -> None:
        self._connection.published(self._batch, len(sent_ns))

    def _send_one(self, body: bytes, place: int) -> None:
        self._connection.publish(_CHANNEL, self._batch.method, body, self._batch.properties)

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            match event:
                case Confirmed(ranges=stretches, accepted=accepted):
                    settlement = Settlement.ACCEPTED if accepted else Settlement.REJECTED
                    for outcome in self._outcomes(((first - 1, last - 1) for first, last in stretches), settlement):
                        outcomes += self._without_returned(outcome)
                case Returned(body=body):
                    outcomes += self._take_back(body)
        return outcomes

    def _without_returned(self, confirmed: SettledMessages) -> list[SettledMessages]:
        """What a confirm says about messages that did not come back before it."""
        if not self._returned:
            return [confirmed]
        returned = self._returned.intersection(confirmed.seqs)
        self._returned -= returned
        kept = np.array([seq for seq in confirmed.seqs if seq not in returned], np.int64)
        return [SettledMessages(kept, confirmed.settlement)] if len(kept) else []

    def _take_back(self, body: bytes) -> list[SettledMessages]:
        """A message that no queue took. It is confirmed right after this, which then counts for nothing."""
        magic, _, _, seq, _, _ = ONE_STAMP.unpack_from(body) if len(body) >= STAMP_BYTES else (0,) * 6
        if magic != MAGIC or not self._numbering.includes(seq):
            self._fail("the system returned a message that we did not send")
            return []
        self._returned.add(seq)
        return [SettledMessages(range(seq, seq + 1), Settlement.RELEASED)]

    def _preparation(self) -> list[Method]:
        steps: list[Method] = [] if self._group.is_topic else [self._declare()]
        return [*steps, ConfirmSelect()] if self._waits_for_outcomes else steps


class Amqp091Receiver(_Link):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._queue = "" if group.is_topic else group.destination  # no name: the queue declared last on this channel
        self._ack = group.target.options.ack or ("multiple" if self._waits_for_outcomes else "none")
        self._unacked: list[int] = []
        self._prefetch = prefetch_of(group, PREFETCH)
        self.window = UNLIMITED if self._ack == "none" else self._prefetch
        self._last_tag = 0  # handed out
        self._done_tag = 0  # done with
        self._acked_tag = 0  # and said so
        self._call()

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
        """Everything that is done with: with one word, or one by one where that is asked for."""
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

    def _preparation(self) -> list[Method]:
        steps: list[Method] = [self._declare()]
        if self._group.is_topic:
            steps = [
                QueueDeclare(exclusive=True, auto_delete=True),
                QueueBind(exchange=exchange_of(self._group), routing_key=self._group.destination),
            ]
        return [*steps, BasicQos(prefetch_count=self._prefetch)] if self._ack != "none" else steps
