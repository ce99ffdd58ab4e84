"""How does the load engine speak AMQP 1.0?

A socket, a sans-IO connection and one link make a channel. Receivers settle whole ranges and top their credit up when
half of it is used. Everything the other side does wrong ends this channel with its own words and no other one.
"""

import itertools
import os
import time
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import numpy as np

from crescendo.load.driver import Arrived, Outcome
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group, Settle
from crescendo.net.sockets import connect, fill, flush, shut
from crescendo.record.schema import Settlement
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import RECEIVER, Connection
from crescendo.wire.amqp10.events import (
    Attached,
    Begun,
    Closed,
    Deliveries,
    Detached,
    Ended,
    Event,
    Opened,
    Refused,
    Settled,
)
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.performatives import Accepted, Attach, Modified, Rejected, Released
from crescendo.wire.stamp import stamps_of

DEFAULT_PORT = 5672
CREDIT = 4000
IDLE_TIME_OUT_MS = 10_000
TOPIC_PREFIXES = {"ActiveMQ": "topic://", "RabbitMQ": "/topic/"}
_IDLE_PATIENCE = 2  # the specification: announce half of the time after which you give up
_SERIAL = 0xFFFF_FFFF
_SETTLEMENTS: dict[type, Settlement] = {
    Accepted: Settlement.ACCEPTED,
    Rejected: Settlement.REJECTED,
    Released: Settlement.RELEASED,
    Modified: Settlement.MODIFIED,
}
_numbers = itertools.count()


class _Link:
    """One connection with one link, either way."""

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        parts = urlsplit(url)
        credentials = None
        if parts.username is not None:
            credentials = Credentials(unquote(parts.username), unquote(parts.password or ""))
        host = parts.hostname or "127.0.0.1"
        self._group = group
        self._settled = group.settle is Settle.AT_MOST_ONCE
        self._name = f"crescendo-{os.getpid()}-{next(_numbers)}"
        self._socket = connect(host, parts.port or DEFAULT_PORT)
        self._connection = Connection(
            container_id=self._name,
            hostname=host,
            credentials=credentials,
            idle_time_out_ms=IDLE_TIME_OUT_MS,
            batching=batching,
        )
        self._handle = -1
        self._product = ""
        self.read_ns = self._written_ns = time.monotonic_ns()
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
            self._fail(str(err))
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        if self.closed is not None:
            return
        silent_ms = (now_ns - self.read_ns) // 1_000_000
        if silent_ms > _IDLE_PATIENCE * IDLE_TIME_OUT_MS:
            self._fail(f"the system has been silent for {silent_ms / 1000:.0f} s")
            return
        limit_ms = self._connection.remote_idle_time_out_ms
        if limit_ms and now_ns - self._written_ns > limit_ms * 1_000_000 // 2 and not self._connection.outgoing:
            self._connection.heartbeat()
            self.flush()

    def close(self) -> None:
        if self.closed is None:
            self._connection.close()
            self.flush()
            self.closed = "closed by us"
        shut(self._socket)

    def _events(self) -> Iterator[Event]:
        """Read once; yield what it meant."""
        if self.closed is not None:
            return
        try:
            count = fill(self._socket, self._connection.receive_buffer())
            if count is None:
                return
            if count == 0:
                self._fail("the system closed the connection")
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
            case Opened(product=product):
                self._product = product
            case Begun():
                self._handle = self._attach()
            case Attached(attach=attach):
                # A refusal is an attach without the terminus we asked for; the detach with the reason follows.
                self.ready = self._granted(attach)
            case Refused(reason=reason):
                self._fail(reason)
            case Detached(error=error):
                self._fail(f"the system ended the link: {error or 'no reason given'}")
            case Ended(error=error):
                self._fail(f"the system ended the session: {error or 'no reason given'}")
            case Closed(error=error):
                self._fail(f"the system closed the connection: {error or 'no reason given'}")
            case _:
                return False
        return True

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        shut(self._socket)

    @property
    def _address(self) -> str:
        """What this system calls the destination. Most go by the capability; some want names of their own."""
        prefix = TOPIC_PREFIXES.get(self._product, "") if self._group.is_topic else ""
        return prefix + self._group.destination

    def _attach(self) -> int:
        raise NotImplementedError

    def _granted(self, attach: Attach) -> bool:
        raise NotImplementedError


class Amqp10Sender(_Link):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._batching = batching
        self._batch = TransferBatch(handle=0, body_length=group.size, settled=self._settled)
        self.capacity = self._batch.capacity
        self.stamps = stamps_of(self._batch.bodies)
        self.batched = 0

    def room(self) -> int:
        if not self.ready or self._connection.outgoing:
            return 0
        return min(self._connection.sendable(self._handle, self._group.size), self.capacity)

    def send(self, count: int) -> None:
        if self._batching and self._batch.frame_length <= self._connection.remote_max_frame_size:
            self._connection.transfer(self._batch, self._handle, count)
            self.batched += count
        else:
            for body in self._batch.bodies[:count]:
                self._connection.transfer_one(self._handle, body.tobytes(), settled=self._settled)
        self.flush()

    def pump(self) -> list[Outcome]:
        outcomes = []
        for event in self._events():
            if isinstance(event, Settled) and event.role is RECEIVER:
                settlement = _SETTLEMENTS.get(type(event.state))
                if settlement is not None or event.settled:
                    first = self._sequence(event.first)
                    last = first + ((event.last - event.first) & _SERIAL)
                    outcomes.append(Outcome(first, last, settlement or Settlement.ACCEPTED))
                    if not event.settled:
                        self._connection.settle(event.first, event.last, event.state, role=not RECEIVER)
        return outcomes

    def _sequence(self, delivery_id: int) -> int:
        """Delivery ids are sequence numbers modulo 2^32, because this connection has one link and sends in order."""
        sent = self._connection.deliveries_sent
        return sent - ((sent - delivery_id) & _SERIAL)

    def _attach(self) -> int:
        return self._connection.attach_sender(
            self._name, self._address, settled=self._settled, topic=self._group.is_topic
        )

    def _granted(self, attach: Attach) -> bool:
        return attach.target is not None


class Amqp10Receiver(_Link):
    """A receiving channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._credit = 0
        self._begun = False

    def begin(self) -> None:
        self._begun = True
        self._top_up()
        self.flush()

    def pump(self) -> Iterator[Arrived]:
        for event in self._events():
            if not isinstance(event, Deliveries):
                continue
            yield Arrived(event.bodies, event.redelivered, event.batched)
            self._credit -= len(event.ids)
            if not event.settled:
                self._settle(event.ids)
        if self._begun and self.ready and self._credit <= CREDIT // 2:
            self._top_up()
            self.flush()

    def _settle(self, ids: np.ndarray) -> None:
        # One disposition for each stretch of consecutive ids; almost always that is one.
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1 if len(ids) > 1 else ()
        for stretch in np.split(ids, breaks) if len(breaks) else (ids,):
            self._connection.settle(int(stretch[0]), int(stretch[-1]))

    def _top_up(self) -> None:
        self._credit = CREDIT
        self._connection.grant(self._handle, CREDIT)

    def _attach(self) -> int:
        return self._connection.attach_receiver(
            self._name, self._address, settled=self._settled, topic=self._group.is_topic
        )

    def _granted(self, attach: Attach) -> bool:
        return attach.source is not None
