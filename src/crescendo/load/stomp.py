"""How does the load engine speak STOMP?

A socket, a sans-IO connection and one destination make a channel. At-least-once senders ask for a receipt of every
message, under its sequence number; receivers acknowledge once a read, up to the last message. Everything the other side
does wrong ends this channel with its own words and no other one.
"""

import time
from collections import deque
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from crescendo.load.driver import Arrived, Outcome
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import connect, fill, flush, shut
from crescendo.record.schema import Settlement
from crescendo.wire.stamp import stamps_of
from crescendo.wire.stomp.batch import SendBatch, receipt_id
from crescendo.wire.stomp.commands import Ack
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, Receipts
from crescendo.wire.stomp.handshake import Heartbeats

DEFAULT_PORT = 61613
DEFAULT_VIRTUAL_HOST = "/"  # RabbitMQ takes the host header for one of its virtual hosts; the others do not look
HEARTBEAT_MS = 10_000
PREFETCH = 4000
UNSETTLED = 65_536
"""STOMP has no credit. Without a bound of ours a broker that reads quickly and stores slowly would fill our memory."""

QUEUE_PREFIX, TOPIC_PREFIX = "/queue/", "/topic/"
_PATIENCE = 2  # a heart-beat may be late; the specification asks for a margin
_SUBSCRIPTION = "0"
_SUBSCRIBED = "subscribed"
# How much may be on its way to us: each broker knows its own header and ignores the others'. By default some send one
# message at a time. Artemis reopens its window (in bytes) when messages are acknowledged, so auto must have none.
_AT_ONCE = {"prefetch-count": str(PREFETCH), "activemq.prefetchSize": str(PREFETCH)}
_ARTEMIS_WINDOW = {Ack.CLIENT: str(1 << 20), Ack.AUTO: "-1"}


def destination_of(group: Group) -> str:
    """What a group's address is called in STOMP. Brokers must be configured to read these prefixes so."""
    return (TOPIC_PREFIX if group.is_topic else QUEUE_PREFIX) + group.destination


class _Channel:
    """One connection, either way."""

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        parts = urlsplit(url)
        host = parts.hostname or "127.0.0.1"
        signed = parts.username is not None
        self._destination = destination_of(group)
        self._counts = group.settle is not Settle.AT_MOST_ONCE
        self._connection = Connection(
            host=unquote(parts.path[1:]) or DEFAULT_VIRTUAL_HOST,
            login=unquote(parts.username or "") if signed else None,
            passcode=unquote(parts.password or "") if signed else None,
            heartbeats=Heartbeats(HEARTBEAT_MS, HEARTBEAT_MS),
            batching=batching,
        )
        self._socket = connect(host, parts.port or DEFAULT_PORT)
        self.read_ns = self._written_ns = time.monotonic_ns()
        self.ready = False
        self.closed: str | None = None
        self._broken: str | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def flush(self) -> bool:
        outgoing: deque[memoryview] = self._connection.outgoing
        if not outgoing or self.closed is not None:
            return True
        try:
            done = flush(self._socket, outgoing)
        except PeerError as err:
            # It may have said why before it hung up. So the reading side, which is sure to notice, ends the channel.
            self._broken = str(err)
            outgoing.clear()
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        agreement = self._connection.agreement
        if self.closed is not None or agreement is None:
            return
        silent_ms = (now_ns - self.read_ns) // 1_000_000
        if agreement.expect_every_ms and silent_ms > _PATIENCE * agreement.expect_every_ms:
            self._fail(f"the system has been silent for {silent_ms / 1000:.0f} s")
            return
        quiet_ms = (now_ns - self._written_ns) // 1_000_000
        if agreement.send_every_ms and quiet_ms > agreement.send_every_ms // 2 and not self._connection.outgoing:
            self._connection.heartbeat()
            self.flush()

    def close(self) -> None:
        if self.closed is None:
            self._connection.disconnect()
            self.flush()
            self.closed = "closed by us"
        shut(self._socket)

    def _events(self, limit: int | None = None) -> Iterator[Event]:
        """Read once, at most so many bytes; yield what it meant."""
        if self.closed is not None:
            return
        try:
            count = fill(self._socket, self._connection.receive_buffer()[:limit])
            if count is None:
                return
            if count == 0:
                self._fail(self._broken or "the system closed the connection")
                return
            self.read_ns = time.monotonic_ns()
            self._connection.received(count)
            while self.closed is None and (event := self._connection.next_event()) is not None:
                if isinstance(event, Failed):
                    self._fail(f"the system refused: {event.reason}")
                else:
                    yield event
        except PeerError as err:
            self._fail(self._broken or str(err))

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        shut(self._socket)


class StompSender(_Channel):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._batching = batching
        self._size = group.size
        self._sent = 0
        self._settled = 0
        self.batched = 0
        self._prepare(Version.V1_2)

    def _prepare(self, version: Version) -> None:
        self._batch = SendBatch(self._destination, body_length=self._size, receipts=self._counts, version=version)
        self.capacity = self._batch.capacity
        self.stamps = stamps_of(self._batch.bodies)

    def room(self) -> int:
        if not self.ready or self._connection.outgoing or self._broken is not None:
            return 0
        if not self._counts:
            return self.capacity
        return max(min(self.capacity, UNSETTLED - (self._sent - self._settled)), 0)

    def send(self, count: int) -> None:
        if self._batching:
            self._connection.send_batch(self._batch, self._sent, count)
            self.batched += count
        else:
            for number, body in enumerate(self._batch.bodies[:count], self._sent):
                receipt = receipt_id(number) if self._counts else None
                self._connection.send(self._destination, body.tobytes(), receipt=receipt)
        self._sent += count
        self.flush()

    def pump(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for event in self._events():
            match event:
                case Connected(agreement=agreement):
                    if agreement.version is not Version.V1_2:
                        self._prepare(agreement.version)  # it may escape the destination in another way
                    self.ready = True
                case Receipts():
                    try:
                        outcomes += self._outcomes(event)
                    except PeerError as err:
                        self._fail(str(err))
                case _:
                    self._fail("the system sent a message to a sender")
        self.flush()
        return outcomes

    def _outcomes(self, receipts: Receipts) -> list[Outcome]:
        """One for each stretch of consecutive numbers; almost always that is one."""
        numbers = receipts.numbers
        if numbers is None:
            return [Outcome(number, number, Settlement.ACCEPTED) for number in map(self._number, receipts.ids)]
        if numbers.max() >= self._sent:
            raise PeerError(f"a receipt {int(numbers.max())} that nobody asked for")
        self._settled += len(numbers)
        return [Outcome(int(one[0]), int(one[-1]), Settlement.ACCEPTED) for one in _stretches(numbers)]

    def _number(self, receipt: str) -> int:
        if not (receipt.isascii() and receipt.isdigit() and len(receipt) <= 18 and int(receipt) < self._sent):
            raise PeerError(f"a receipt {receipt[:40]!r} that nobody asked for")
        self._settled += 1
        return int(receipt)


class StompReceiver(_Channel):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._subscribed = False
        self._begun = False

    def begin(self) -> None:
        self._begun = True

    def pump(self) -> Iterator[Arrived]:
        if not self._begun:
            self._become_ready()
            return
        last: str | None = None
        for event in self._events():
            if isinstance(event, Deliveries):
                yield Arrived(event.bodies, event.redelivered, event.batched)
                last = event.ids[-1]
        if last and self._counts and self.closed is None:
            self._connection.ack(_SUBSCRIPTION, last)
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
                    ack = Ack.CLIENT if self._counts else Ack.AUTO
                    more = _AT_ONCE | {"consumer-window-size": _ARTEMIS_WINDOW[ack]}
                    self._connection.subscribe(_SUBSCRIPTION, self._destination, ack, receipt=_SUBSCRIBED, more=more)
            self.flush()
        waiting = self._subscribed
        while waiting and not self.ready and self.closed is None:
            before_ns = self.read_ns
            for event in self._events(limit=1):
                self.ready = isinstance(event, Receipts)
            self.ready = self.closed is None and (self.ready or self._connection.begins_with_message)
            waiting = self.read_ns != before_ns


def _stretches(numbers: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    return np.split(numbers, breaks) if len(breaks) else [numbers]
