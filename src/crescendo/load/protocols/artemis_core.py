"""How does the load engine speak Core, the native protocol of Artemis?

A socket, a sans-IO connection with one session, and one producer or consumer make a channel. Clients of Core create
what they use, so a channel first asks whether its queue or topic is there. At-least-once senders ask for a response to
every message; all senders ask for credit. Receivers acknowledge what they have read, and grant as many bytes again. A
protocol violation by the system closes this channel, with its reason, and no other one.
"""

import secrets
import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from crescendo.load.protocols.answered_send_channel import AnsweredSendChannel
from crescendo.load.protocols.base_channel import BaseChannel, prefetch_of
from crescendo.load.protocols.interfaces import Octets, ReceivedMessages
from crescendo.load.protocols.jms_acknowledgement import AckMode
from crescendo.model.workload import Group
from crescendo.wire.artemis_core.batch import SendBatch, packet_of
from crescendo.wire.artemis_core.connection import Connection
from crescendo.wire.artemis_core.events import (
    Closed,
    Completed,
    Connected,
    CreditRefused,
    Deliveries,
    Event,
    Granted,
    Refused,
)
from crescendo.wire.artemis_core.packets import AddressInfo, ErrorCode, QueueInfo, RoutingType
from crescendo.wire.responses import Responses

TTL_MS = 20_000  # brokers enforce it, also while a run with many connections is being prepared
PREFETCH = 4000
CREDIT_BYTES = 1 << 20
"""The credit of a sender is filled up to this, or to some messages if they are larger."""
MAX_WINDOW_BYTES = 100 << 20
_MIN_CREDIT_MESSAGES = 4
_SILENCE_FACTOR = 2  # pings may be late
_PINGS = 3  # that we send within the agreed time
_NUMBER = 1  # of the only producer or consumer of a connection
_EXISTS = (ErrorCode.QUEUE_EXISTS, ErrorCode.ADDRESS_EXISTS)  # another client was faster
_FREQUENT = (Deliveries, Responses, Granted)  # these differ by direction; testing for them first is fastest


def routing_type_of(group: Group) -> RoutingType:
    return RoutingType.MULTICAST if group.is_topic else RoutingType.ANYCAST


class _Channel(BaseChannel):
    """One connection, in either direction."""

    _connection: Connection
    _close_reply = Completed

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        super().__init__(url, group, batching=batching)
        self._pinged_ns = time.monotonic_ns()  # every connection begins with a ping

    def _connect(self) -> None:
        name = secrets.token_urlsafe(9)
        self._dial(
            Connection(
                name,
                user=self._user,
                password=None if self._user is None else self._password,
                client_id=f"crescendo-{self._subscription_name or name}",
                ttl_ms=TTL_MS,
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.disconnect()

    def keep_alive(self, now_ns: int) -> None:
        """Brokers of Core send nothing by themselves: only a returned ping shows that an idle one is there."""
        super().keep_alive(now_ns)
        due_ns = self._pinged_ns + TTL_MS * 1_000_000 // _PINGS
        if now_ns > due_ns and self.closed is None and not self._connection.outgoing:
            self._pinged_ns = now_ns
            self._connection.heartbeat()
            self.flush()

    def _idle_timeout_ns(self) -> int:
        return _SILENCE_FACTOR * TTL_MS * 1_000_000

    def _heartbeat_interval_ns(self) -> int:
        return 0  # pings do not depend on what else we write

    def _end_of_stream_reason(self) -> str:
        silent = "" if self._connection.connected else " without a reply; is this a Core port of Artemis?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        if isinstance(event, _FREQUENT):
            return False
        match event:
            case Connected():
                self._prepare_destination()
            case Completed(answer=answer):
                if not self.ready:
                    self._take_answer(answer)
            case Refused(code=code) if code in _EXISTS and not self.ready:
                self._attach()
            case Refused(reason=reason):
                self._fail(f"the system refused: {reason}")
            case Closed(reason=reason):
                self._fail(f"the system closed the connection: {reason or 'no reason given'}")
            case _:
                return False
        return True

    @abstractmethod
    def _prepare_destination(self) -> None:
        """Ask for the queue or the topic, or create it."""

    @abstractmethod
    def _take_answer(self, answer: object) -> None:
        """The answer to the last request before the channel is ready."""

    @abstractmethod
    def _attach(self) -> None:
        """The destination is there: announce the producer or consumer."""

    def _create_shared_queue(self) -> None:
        name, temporary = self._group.destination, self._group.target.options.temporary
        self._connection.create_queue(name, name, durable=not temporary, auto_delete=temporary)

    def _fail_as_missing(self) -> None:
        kind = "topic" if self._group.is_topic else "queue"
        name = self._group.destination
        self._fail(f"the system refused: {kind} {name} does not exist, and the broker creates none on demand")


class ArtemisCoreSender(AnsweredSendChannel, _Channel):
    """A sending channel."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._credit_bytes = 0
        self._asked_bytes = 0
        self._connect()
        self.resize(self._size)

    def room(self) -> int:
        room = super().room()
        credited: int = self._credit_bytes // self._batch.frame_length
        if room and not credited:
            self._ask_for_credit()  # the messages have become larger
        return min(room, credited)

    def _prepare_destination(self) -> None:
        self._batches.clear()  # versions encode messages differently
        self.resize(self._size)
        if self._group.is_topic:
            self._connection.query_address(self._group.destination)
        else:
            self._connection.query_queue(self._group.destination)

    def _take_answer(self, answer: object) -> None:
        match answer:
            case AddressInfo(exists=False, creates_addresses=True):
                self._connection.create_address(self._group.destination, RoutingType.MULTICAST)
            case QueueInfo(exists=False, creates_queues=True):
                self._create_shared_queue()
            case AddressInfo(exists=False) | QueueInfo(exists=False):
                self._fail_as_missing()
            case _:
                self._attach()

    def _attach(self) -> None:
        self._connection.add_producer(_NUMBER, self._group.destination)
        self._ask_for_credit()
        self.ready = True  # an address that is full grants nothing, and holds the sender back

    def _ask_for_credit(self) -> None:
        """Fill the credit up when half of it is used."""
        wanted = max(CREDIT_BYTES, _MIN_CREDIT_MESSAGES * self._batch.frame_length)
        left = self._credit_bytes + self._asked_bytes
        if left <= wanted // 2:
            self._connection.request_credits(self._group.destination, wanted - left)
            self._asked_bytes += wanted - left
            self.flush()

    def _new_batch(self, size: int) -> SendBatch:
        return SendBatch(packet_of(0, bytes(size), **self._message_fields()), self._connection.version)

    def _message_fields(self) -> dict[str, Any]:
        options = self._group.target.options
        return {
            "producer": _NUMBER,
            "address": self._group.destination,
            "routing_type": routing_type_of(self._group),
            "response_required": self._waits_for_outcomes,
            "durable": bool(options.durable),
            "priority": options.priority,
            "properties": self._group.properties,
        }

    def _on_sent(self, count: int) -> None:
        super()._on_sent(count)
        self._credit_bytes -= count * self._batch.frame_length
        self._ask_for_credit()

    def _take(self, event: Event) -> None:
        match event:
            case Granted(credits=credits):
                self._take_credit(credits)
            case CreditRefused(credits=credits, address=address):
                self._on_credit_refused(credits, address)
            case Deliveries():
                self._fail("the system sent a message to a sender")

    def _take_credit(self, credits: int) -> None:
        self._credit_bytes += max(credits, 0)
        self._asked_bytes = max(self._asked_bytes - credits, 0)

    def _on_credit_refused(self, credits: int, address: str) -> None:
        """The address is full. If messages are answered, the next one is refused in the broker's own words."""
        if self._waits_for_outcomes:
            self._take_credit(credits)
        else:
            self._fail(f"the system refused credit: address {address} is full")


class ArtemisCoreReceiver(_Channel):
    """A receiving channel. It is attached when it is ready; the session starts with `begin`."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._mode = AckMode(group.target.options.ack or AckMode.CLIENT)
        self.window = prefetch_of(group, PREFETCH)
        self._queue = group.destination
        if self._subscription_name is not None:
            self._queue = subscription_queue(f"crescendo-{self._subscription_name}", self._subscription_name)
        elif group.is_topic:
            self._queue = f"crescendo-{secrets.token_urlsafe(12)}"
        self._attaching = False
        self._window_is_open = False
        self._unacked: list[Octets] = []  # the ids of each run
        self._spent_bytes = 0  # of the window, since the last grant
        self._connect()

    def begin(self) -> None:
        """One byte of credit is enough for one message, whose size then decides how many bytes the window has."""
        self._connection.grant(_NUMBER, 1)
        self._connection.start()
        self.flush()

    def _prepare_destination(self) -> None:
        if self._group.is_topic and self._subscription_name is None:
            self._create_subscription(durable=False)
        else:
            self._connection.query_queue(self._queue)

    def _create_subscription(self, *, durable: bool) -> None:
        self._connection.create_queue(
            self._group.destination,
            self._queue,
            routing_type=RoutingType.MULTICAST,
            selector=self._group.target.options.selector,
            durable=durable,
            temporary=not durable,
            max_consumers=1,
        )

    def _take_answer(self, answer: object) -> None:
        if self._attaching:
            self.ready = True
            return
        match answer:
            case QueueInfo(exists=False) if self._subscription_name is not None:
                self._create_subscription(durable=True)
            case QueueInfo(exists=False, creates_queues=True):
                self._create_shared_queue()
            case QueueInfo(exists=True) if self._is_another_subscription(answer):
                self._fail(
                    f"the system refused: subscription {self._subscription_name} exists with another topic or "
                    "selector; delete it, or choose another name"
                )
            case _:
                self._attach()  # if the queue is missing, the broker says so

    def _is_another_subscription(self, found: QueueInfo) -> bool:
        expected = (self._group.destination, self._group.target.options.selector)
        return self._subscription_name is not None and (found.address, found.selector) != expected

    def _attach(self) -> None:
        self._attaching = True
        selector = None if self._group.is_topic else self._group.target.options.selector
        self._connection.add_consumer(_NUMBER, self._queue, selector=selector)

    def pump(self) -> Iterator[ReceivedMessages]:
        for event in self._events():
            if isinstance(event, Deliveries):
                yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
                self._note(event)

    def _note(self, event: Deliveries) -> None:
        ids = event.ids[-1:] if self._mode is AckMode.CLIENT else event.ids
        self._unacked.append(ids.copy())
        if not event.is_credited:
            self._spent_bytes += event.frame_bytes
        if not self._window_is_open:
            self._window_is_open = True
            self._spent_bytes += min((self.window - 1) * event.frame_bytes // len(event.ids), MAX_WINDOW_BYTES)

    def settle(self) -> None:
        if self.closed is None and self._unacked:
            ids = self._unacked[-1] if self._mode is AckMode.CLIENT else np.concatenate(self._unacked)
            self._connection.acknowledge(_NUMBER, ids, individual=self._mode is AckMode.INDIVIDUAL)
            if self._spent_bytes:
                self._connection.grant(_NUMBER, self._spent_bytes)
        self._unacked.clear()
        self._spent_bytes = 0
        self.flush()


def subscription_queue(client_id: str, name: str) -> str:
    """The queue of a durable subscription, called as JMS clients call it, so that they can share it."""
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in (client_id, name))
