"""How does the load engine speak AMQP 0-9-1?

A socket, a sans-IO connection and one channel on it. `queue://x` is the queue x behind the default exchange, declared
durable where it does not exist; `topic://x` is the routing key x on amq.topic, and each receiver has a queue of its own
there. Senders that wait for outcomes use publisher confirms and mandatory messages, so that a vanished queue shows as
released messages, not as accepted ones. Everything the other side does wrong ends this channel with its own words.
"""

import itertools
import os
import time
from collections import deque
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from crescendo.load.driver import Arrived, Outcome
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.workload import STAMP_BYTES, Group, Settle
from crescendo.net.sockets import connect, fill, flush, shut
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
    Opened,
    Refused,
    Returned,
    Said,
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
from crescendo.wire.amqp091.types import MAX_SHORT_STRING_BYTES
from crescendo.wire.stamp import MAGIC, ONE_STAMP, stamps_of

DEFAULT_PORT = 5672
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


class _Link:
    """One connection with one channel, either way."""

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        if len(group.destination.encode()) > MAX_SHORT_STRING_BYTES:
            raise ConfigError(f"AMQP 0-9-1 names have at most {MAX_SHORT_STRING_BYTES} bytes: {group.destination!r}")
        parts = urlsplit(url)
        self._group = group
        self._at_least_once = group.settle is not Settle.AT_MOST_ONCE
        self._socket = connect(parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORT)
        self._connection = Connection(
            virtual_host=unquote(parts.path.removeprefix("/")) or "/",
            sign_in=None if parts.username is None else plain(unquote(parts.username), unquote(parts.password or "")),
            limits=Limits(heartbeat_s=HEARTBEAT_S),
            name=f"crescendo-{os.getpid()}-{next(_numbers)}",
            batching=batching,
        )
        self._absent = False
        self._steps: deque[Method] = deque()
        self.read_ns = self._written_ns = time.monotonic_ns()
        self._broken: str | None = None  # why nothing can be written any more
        self.ready = False
        self.closed: str | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def flush(self) -> bool:
        outgoing = self._connection.outgoing
        if not outgoing or self.closed is not None:
            return True
        try:
            done = flush(self._socket, outgoing)
        except PeerError as err:
            # Who closes while we write has often said why, and confirmed much: that is still to be read.
            self._broken = str(err)
            outgoing.clear()
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        if self.closed is not None:
            return
        interval_ns = self._connection.limits.heartbeat_s * 10**9
        if now_ns - self.read_ns > _PATIENCE * interval_ns:
            self._fail(f"the system has been silent for {(now_ns - self.read_ns) / 1e9:.0f} s")
        elif now_ns - self._written_ns > interval_ns // 2 and not self._connection.outgoing:
            self._connection.heartbeat()
            self.flush()

    def close(self) -> None:
        if self.closed is None:
            self._connection.close()
            self.flush()
            self.closed = "closed by us"
        shut(self._socket)

    # -- what both directions hear -------------------------------------------------------------------------------

    def _events(self) -> Iterator[Event]:
        """Read once; yield what it meant."""
        if self.closed is not None:
            return
        try:
            count = fill(self._socket, self._connection.receive_buffer())
            if count is None:
                return
            if count == 0:
                silent = "" if self._connection.greeted else " without a word; does it speak AMQP 0-9-1?"
                self._fail(self._broken or f"the system closed the connection{silent}")
                return
            self.read_ns = time.monotonic_ns()
            self._connection.received(count)
            while self.closed is None and (event := self._connection.next_event()) is not None:
                if not self._handle_common(event):
                    yield event
        except PeerError as err:
            self._fail(str(err))
            return
        self.flush()

    def _handle_common(self, event: Event) -> bool:
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
            case Said(method=BasicCancel()):
                self._fail(f"the system cancelled the consumer of {self._group.destination!r}: is the queue gone?")
            case Said(method=ChannelFlow() | BasicConsumeOk()):
                pass
            case Said():
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
            self._connection.say(_CHANNEL, self._steps[0])

    def _declare(self) -> QueueDeclare:
        """Take the queue as it is; durable where it has to be made."""
        queue = self._group.destination
        return QueueDeclare(queue=queue, durable=True) if self._absent else QueueDeclare(queue=queue, passive=True)

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        shut(self._socket)

    def _preparation(self) -> list[Method]:
        raise NotImplementedError


class Amqp091Sender(_Link):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._batching = batching
        self._batch = PublishBatch(
            exchange=TOPIC_EXCHANGE if group.is_topic else "",
            routing_key=group.destination,
            body_length=group.size,
            channel=_CHANNEL,
            mandatory=self._at_least_once and not group.is_topic,
        )
        self._sent = 0
        self._returned: set[int] = set()
        self.capacity = self._batch.capacity
        self.stamps = stamps_of(self._batch.bodies)
        self.batched = 0

    def room(self) -> int:
        connection = self._connection
        if not self.ready or self._broken or connection.outgoing or not connection.publishable(_CHANNEL):
            return 0
        return max(min(self.capacity, MAX_UNCONFIRMED - connection.unconfirmed(_CHANNEL)), 0)

    def send(self, count: int) -> None:
        if self._batching and self._batch.largest_frame <= self._connection.limits.frame_max:
            self._connection.publish_batch(self._batch, count)
            self.batched += count
        else:
            for body in self._batch.bodies[:count]:
                self._connection.publish(_CHANNEL, self._batch.method, body.tobytes(), self._batch.properties)
        self._sent += count
        self.flush()

    def pump(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for event in self._events():
            match event:
                case Confirmed(stretches=stretches, accepted=accepted):
                    settlement = Settlement.ACCEPTED if accepted else Settlement.REJECTED
                    for first, last in stretches:
                        outcomes += self._outcomes(first - 1, last - 1, settlement)
                case Returned(body=body):
                    outcomes += self._take_back(body)
        return outcomes

    def _outcomes(self, first_seq: int, last_seq: int, settlement: Settlement) -> list[Outcome]:
        """What a confirm says about messages that did not come back before it."""
        outcomes = []
        if self._returned:
            for seq in range(first_seq, last_seq + 1):
                if seq in self._returned:
                    self._returned.remove(seq)
                    if first_seq < seq:
                        outcomes.append(Outcome(first_seq, seq - 1, settlement))
                    first_seq = seq + 1
        if first_seq <= last_seq:
            outcomes.append(Outcome(first_seq, last_seq, settlement))
        return outcomes

    def _take_back(self, body: bytes) -> list[Outcome]:
        """A message that no queue took. It is confirmed right after this, which then counts for nothing."""
        magic, _, _, seq, _, _ = ONE_STAMP.unpack_from(body) if len(body) >= STAMP_BYTES else (0,) * 6
        if magic != MAGIC or seq >= self._sent:
            self._fail("the system returned a message that we did not send")
            return []
        self._returned.add(seq)
        return [Outcome(seq, seq, Settlement.RELEASED)]

    def _preparation(self) -> list[Method]:
        steps: list[Method] = [] if self._group.is_topic else [self._declare()]
        return [*steps, ConfirmSelect()] if self._at_least_once else steps


class Amqp091Receiver(_Link):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._queue = "" if group.is_topic else group.destination  # no name: the queue declared last on this channel
        self._last_tag = 0
        self._acked_tag = 0

    def begin(self) -> None:
        self._connection.say(_CHANNEL, BasicConsume(queue=self._queue, no_ack=not self._at_least_once))
        self.flush()

    def pump(self) -> Iterator[Arrived]:
        for event in self._events():
            if isinstance(event, Deliveries):
                yield Arrived(event.bodies, event.redelivered, event.batched)
                self._last_tag = int(event.tags[-1])
        if self._last_tag - self._acked_tag >= ACK_EVERY:
            self._acknowledge()

    def keep_alive(self, now_ns: int) -> None:
        self._acknowledge()
        super().keep_alive(now_ns)

    def close(self) -> None:
        self._acknowledge()
        super().close()

    def _acknowledge(self) -> None:
        """Everything that was handed out, with one word."""
        if self._at_least_once and self._last_tag > self._acked_tag and self.closed is None:
            self._connection.say(_CHANNEL, BasicAck(self._last_tag, multiple=True))
            self._acked_tag = self._last_tag
            self.flush()

    def _preparation(self) -> list[Method]:
        steps: list[Method] = [self._declare()]
        if self._group.is_topic:
            steps = [
                QueueDeclare(exclusive=True, auto_delete=True),
                QueueBind(exchange=TOPIC_EXCHANGE, routing_key=self._group.destination),
            ]
        return [*steps, BasicQos(prefetch_count=PREFETCH)] if self._at_least_once else steps
