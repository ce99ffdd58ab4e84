"""How does the load engine speak AMQP 1.0?

A socket, a sans-IO connection and one link make a channel. Receivers settle whole ranges and replenish their credit
when half of it is used. A protocol violation by the system closes this channel, with its reason, and no other one.
"""

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from crescendo.load.protocols.base_channel import BaseChannel, BaseSendChannel, prefetch_of
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import Settlement
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import (
    Attached,
    Begun,
    Closed,
    Credited,
    Deliveries,
    Detached,
    Ended,
    Event,
    Opened,
    Refused,
    Settled,
)
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.links import RECEIVER, SETTLE_SECOND
from crescendo.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Header,
    Modified,
    Rejected,
    Released,
    encode_composite,
)
from crescendo.wire.amqp10.types import Described, UByte, UInt, ULong, encode

CREDIT = 4000
IDLE_TIME_OUT_MS = 10_000
TOPIC_PREFIXES = {"ActiveMQ": "topic://", "RabbitMQ": "/topic/"}
_IDLE_TIME_OUT_FACTOR = 2  # the specification: announce half of the timeout that you enforce
_SERIAL = 0xFFFF_FFFF
_SMALL_BATCH = 8  # up to this many ranges, setting up arrays would cost more than everything else
_APPLICATION_PROPERTIES = ULong(0x74)
_SETTLEMENTS: dict[type, Settlement] = {
    Accepted: Settlement.ACCEPTED,
    Rejected: Settlement.REJECTED,
    Released: Settlement.RELEASED,
    Modified: Settlement.MODIFIED,
}
_FREQUENT = (Deliveries, Settled, Credited)  # these differ by direction; testing for them first is fastest
_connection_numbers = itertools.count()


class _Link(BaseChannel):
    """One connection with one link, in either direction."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        super().__init__(url, group, batching=batching)
        self._idle_time_out_ms = group.connection.heartbeat_ms(IDLE_TIME_OUT_MS)
        self._settled = not self._waits_for_outcomes
        self._exactly_once = group.settle is Settle.EXACTLY_ONCE
        # A durable subscription belongs to a container name, which must be the same in the next run.
        own = f"{os.getpid()}-{next(_connection_numbers)}"
        self._name = f"crescendo-{self._subscription_name or own}"
        self._link = -1
        self._opened, self._product = False, ""

    def _connect(self) -> None:
        self._dial(
            Connection(
                container_id=self._name,
                hostname=self._host,
                credentials=None if self._user is None else Credentials(self._user, self._password),
                external=self._tls is not None and self._tls.certificate is not None,
                idle_time_out_ms=self._idle_time_out_ms,
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.close()

    def _idle_timeout_ns(self) -> int:
        return _IDLE_TIME_OUT_FACTOR * self._idle_time_out_ms * 1_000_000

    def _heartbeat_interval_ns(self) -> int:
        return (self._connection.remote_idle_time_out_ms or 0) * 1_000_000 // 2

    def _end_of_stream_reason(self) -> str:
        silent = "" if self._opened else " without a reply; is this an AMQP port?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        if isinstance(event, _FREQUENT):
            return False
        match event:
            case Opened(product=product):
                self._opened, self._product = True, product
            case Begun():
                self._link = self._attach()
            case Attached(attach=attach):
                # A refusal is an attach without the requested terminus; the detach with the reason follows.
                self.ready = self._is_granted(attach)
                if self.ready and self._exactly_once and attach.rcv_settle_mode != SETTLE_SECOND:
                    self._fail("the system does not offer exactly-once: it would settle before we do")
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

    @property
    def _address(self) -> str:
        """The system's name of the destination. Most systems go by the capability; some want a prefix."""
        prefix = TOPIC_PREFIXES.get(self._product, "") if self._group.is_topic else ""
        return prefix + self._group.destination

    @abstractmethod
    def _attach(self) -> int:
        """Request the link; returns its handle."""

    @abstractmethod
    def _is_granted(self, attach: Attach) -> bool:
        """Whether the system granted the requested terminus."""


def sections_of(group: Group) -> bytes:
    """The sections in front of the body: a header and the properties, if the group asks for them."""
    options = group.target.options
    sections = b""
    if options.durable is not None or options.ttl is not None or options.priority is not None:
        ttl_ms = None if options.ttl is None else UInt(max(options.ttl // 1_000_000, 1))
        priority = None if options.priority is None else UByte(options.priority)
        sections = encode_composite(Header(options.durable, priority, ttl_ms))
    if group.properties:
        sections += encode(Described(_APPLICATION_PROPERTIES, dict(group.properties)))
    return sections


def _precedes(outcome: SettledMessages, seqs: range, settlement: Settlement) -> bool:
    """Whether these messages directly follow those of `outcome` and have the same settlement."""
    return isinstance(outcome.seqs, range) and outcome.seqs.stop == seqs.start and outcome.settlement == settlement


class Amqp10Sender(BaseSendChannel, _Link):
    """A sending channel."""

    _close_reply = Closed

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._sections = sections_of(group)
        self.resize(self._size)
        self._connect()

    def room(self) -> int:
        return min(int(self._connection.sendable(self._link, self._size)), self.capacity) if self._is_writable else 0

    def _new_batch(self, size: int) -> TransferBatch:
        return TransferBatch(handle=0, body_length=size, settled=self._settled, before=self._sections)

    def _fits_a_frame(self) -> bool:
        return bool(self._batch.frame_length <= self._connection.remote_max_frame_size)

    def _send_batch(self, count: int, position: int) -> None:
        self._connection.transfer(self._batch, self._link, count)

    def _prepare(self, count: int, position: int) -> memoryview:
        return self._connection.prepared(self._batch, count)

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        self._connection.transferred(self._link, len(sent_ns))

    def _send_one(self, body: bytes, position: int) -> None:
        self._connection.transfer_one(self._link, body, settled=self._settled, before=self._sections)

    def _decoded_events(self) -> Iterator[Event]:
        yield from self._connection.take_settlements()  # nearly always the only events
        yield from super()._decoded_events()

    def pump(self) -> list[SettledMessages]:
        outcomes: list[SettledMessages] = []
        for event in self._events():
            if isinstance(event, Settled) and event.role is RECEIVER:
                settlement = _SETTLEMENTS.get(type(event.state))
                if settlement is not None or event.settled:
                    self._add_outcomes(outcomes, event.ranges, settlement or Settlement.ACCEPTED)
                    for first, last in event.ranges if not event.settled else ():
                        self._connection.settle(first, last, event.state, role=not RECEIVER)
        return outcomes

    def _add_outcomes(
        self, outcomes: list[SettledMessages], ranges: list[tuple[int, int]], settlement: Settlement
    ) -> None:
        """Delivery ids are positions modulo 2^32, because this connection has one link and sends in order."""
        sent = self._connection.deliveries_sent
        if len(ranges) > _SMALL_BATCH:
            firsts, lasts = np.array(ranges, np.int64).T
            if (firsts == lasts).all():
                outcomes.append(self._settled_positions(sent - ((sent - firsts) & _SERIAL), settlement))
                return
        for first, last in ranges:
            position = sent - ((sent - first) & _SERIAL)
            end = position + ((last - first) & _SERIAL)
            seqs = self._sequence_map.latest(position, end)
            if seqs is None:
                outcomes += self._settled_ranges(((position, end),), settlement)
            elif outcomes and _precedes(outcomes[-1], seqs, settlement):
                outcomes[-1] = SettledMessages(range(outcomes[-1].seqs[0], seqs.stop), settlement)
            else:
                outcomes.append(SettledMessages(seqs, settlement))

    def _attach(self) -> int:
        return self._connection.attach_sender(
            self._name,
            self._address,
            settled=self._settled,
            topic=self._group.is_topic,
            settle_second=self._exactly_once,
        )

    def _is_granted(self, attach: Attach) -> bool:
        return attach.target is not None


class Amqp10Receiver(_Link):
    """A receiving channel."""

    _close_reply = Closed
    _linger_s = 0.3  # RabbitMQ answers at once and leaves it to us to close; Artemis closes the socket itself

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self.window = self._max_credit = prefetch_of(group, CREDIT)
        self._credit = 0
        self._begun = False
        self._unsettled: list[np.ndarray] = []  # delivery ids handed out to the engine
        self._connect()

    def begin(self) -> None:
        self._begun = True
        self._top_up()
        self.flush()

    def pump(self) -> Iterator[ReceivedMessages]:
        for event in self._events():
            if not isinstance(event, Deliveries):
                continue
            yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
            self._credit -= len(event.ids)
            if not event.settled:
                self._unsettled.append(event.ids)

    def settle(self) -> None:
        if self.closed is not None:
            return
        for ids in self._unsettled:
            self._settle(ids)
        self._unsettled.clear()
        if self._begun and self.ready and self._credit <= self._max_credit // 2:
            self._top_up()
        self.flush()

    def _settle(self, ids: np.ndarray) -> None:
        # One disposition per run of consecutive ids; almost always there is one run.
        first, last = int(ids[0]), int(ids[-1])
        if last - first == len(ids) - 1 and not np.count_nonzero(ids != np.arange(first, last + 1, dtype=np.uint32)):
            self._connection.settle(first, last, settled=not self._exactly_once)
            return
        for run in np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1):
            self._connection.settle(int(run[0]), int(run[-1]), settled=not self._exactly_once)

    def _top_up(self) -> None:
        self._credit = self._max_credit
        self._connection.grant(self._link, self._max_credit)

    def _attach(self) -> int:
        options = self._group.target.options
        return self._connection.attach_receiver(
            self._name,
            self._address,
            settled=self._settled,
            topic=self._group.is_topic,
            settle_second=self._exactly_once,
            selector=options.selector,
            durable=options.subscription is not None,
        )

    def _is_granted(self, attach: Attach) -> bool:
        return attach.source is not None
