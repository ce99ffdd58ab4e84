"""How does the load engine speak OpenWire?

A socket, a sans-IO connection, and one producer or consumer make a channel. At-least-once senders ask for a response to
every message; receivers acknowledge what they have read, because a broker sends no more than it lets them hold. A
protocol violation by the system closes this channel, with its reason, and no other one.
"""

import secrets
import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from crescendo.load.protocols.answered_send_channel import AnsweredSendChannel
from crescendo.load.protocols.base_channel import BaseChannel, prefetch_of
from crescendo.load.protocols.interfaces import Octets, ReceivedMessages
from crescendo.load.protocols.jms_acknowledgement import AckMode
from crescendo.model.workload import Group
from crescendo.wire.openwire.batch import MessageBatch, message_of
from crescendo.wire.openwire.connection import Connection
from crescendo.wire.openwire.events import Closed, Completed, Connected, Deliveries, Event, Refused
from crescendo.wire.openwire.frames import LENGTH_BYTES
from crescendo.wire.openwire.identifiers import Destination, QueueDestination, TopicDestination
from crescendo.wire.openwire.messages import AckType
from crescendo.wire.openwire.negotiation import Agreement
from crescendo.wire.responses import Responses

INACTIVITY_MS = 20_000  # brokers enforce it, also while a run with many connections is being prepared
PREFETCH = 4000
_SILENCE_FACTOR = 2  # keep-alives may be late
_KEEP_ALIVES = 3  # that we send within the agreed time
_NUMBER = 1  # of the only producer or consumer of a connection
_FREQUENT = (Deliveries, Responses)  # these differ by direction; testing for them first is fastest


def destination_of(group: Group) -> Destination:
    return TopicDestination(group.destination) if group.is_topic else QueueDestination(group.destination)


class _Channel(BaseChannel):
    """One connection, in either direction."""

    _connection: Connection

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        super().__init__(url, group, batching=batching)
        self._destination = destination_of(group)
        self._attaching = 0  # the command that announces the producer or consumer

    def _connect(self) -> None:
        self._dial(
            Connection(
                secrets.token_urlsafe(6),  # of equal length, so that messages of all senders can be read as one batch
                host=self._host,
                user=self._user,
                password=None if self._user is None else self._password,
                client_id=None if self._subscription_name is None else f"crescendo-{self._subscription_name}",
                inactivity_ms=INACTIVITY_MS,
                batching=self._batching,
            )
        )

    def _send_close(self) -> None:
        self._connection.disconnect()

    def _idle_timeout_ns(self) -> int:
        return _SILENCE_FACTOR * self._inactivity_ns()

    def _heartbeat_interval_ns(self) -> int:
        return self._inactivity_ns() // _KEEP_ALIVES

    def _inactivity_ns(self) -> int:
        """How long the broker lets us be silent; 0 is forever."""
        agreement = self._connection.agreement
        return agreement.inactivity_ms * 1_000_000 if agreement else 0

    def _end_of_stream_reason(self) -> str:
        silent = "" if self._connection.agreement else " without a reply; is this an OpenWire port?"
        return f"the system closed the connection{silent}"

    def _handle(self, event: Event) -> bool:
        if isinstance(event, _FREQUENT):
            return False
        match event:
            case Connected(agreement=agreement):
                self._attaching = self._attach(agreement)
            case Completed(command_id=command_id):
                self.ready = self.ready or command_id == self._attaching
            case Refused(reason=reason):
                self._fail(f"the system refused: {reason}")
            case Closed(reason=reason):
                self._fail(f"the system closed the connection: {reason or 'no reason given'}")
            case _:
                return False
        return True

    @abstractmethod
    def _attach(self, agreement: Agreement) -> int:
        """Announce the producer or consumer; returns the id of the command."""


class OpenWireSender(AnsweredSendChannel, _Channel):
    """A sending channel."""

    _close_reply = Completed

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._connect()
        self.resize(self._size)

    def _attach(self, agreement: Agreement) -> int:
        self._batches.clear()  # versions encode messages differently
        self.resize(self._size)
        length, largest = self._batch.frame_length - LENGTH_BYTES, agreement.max_frame_bytes
        if length > largest:
            self._fail(f"the system accepts frames of at most {largest} bytes; these have {length}")
        return self._connection.add_producer(_NUMBER, self._destination)

    def _new_batch(self, size: int) -> MessageBatch:
        fields = self._message_fields() | {"producer": self._connection.producer_id(_NUMBER)}
        return MessageBatch(message_of(0, bytes(size), **fields), self._connection.version)

    def _message_fields(self) -> dict[str, Any]:
        options = self._group.target.options
        return {
            "producer": _NUMBER,
            "destination": self._destination,
            "response_required": self._waits_for_outcomes,
            "persistent": bool(options.durable),
            "priority": options.priority,
            "properties": self._group.properties,
        }

    def _take(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            self._fail("the system sent a message to a sender")


class OpenWireReceiver(_Channel):
    """A receiving channel. It is attached when it is ready; messages that arrive before `begin` wait."""

    def __init__(self, url: str, group: Group, *, batching: bool = True) -> None:
        super().__init__(url, group, batching=batching)
        self._begun = False
        self._mode = AckMode(group.target.options.ack or AckMode.CLIENT)
        self.window = prefetch_of(group, PREFETCH)
        self._held = False  # whether messages were read before the engine recorded them
        self._unacked: list[tuple[bytes, Octets, int]] = []  # destination, ids and number of messages of each run
        self._connect()

    def _send_close(self) -> None:
        if self._group.target.options.temporary and self.ready:
            # Refused as long as others consume from the queue, so the last receiver deletes it.
            self._connection.remove_consumer(_NUMBER)
            self._connection.delete_destination(self._destination)
        super()._send_close()

    def begin(self) -> None:
        self._begun = True
        self._held = self._connection.undecoded_bytes > 0

    @property
    def pending(self) -> bool:
        return self._held or super().pending

    @property
    def _is_paused(self) -> bool:
        return not self._begun and (self.ready or self._connection.begins_with_message)

    def _idle_timeout_ns(self) -> int:
        return 0 if self._is_paused else super()._idle_timeout_ns()  # nothing is read, so silence says nothing

    def pump(self) -> Iterator[ReceivedMessages]:
        if not self._begun:
            self._await_consumer()
            return
        if self._held:
            self._held = False
            self.read_ns = time.monotonic_ns()
            yield from self._received(self._decoded_events())
        yield from self._received(self._events())

    def _await_consumer(self) -> None:
        """Read up to the answer or into the first message, which may come before it.

        The rest waits in the buffer and in the socket, because the engine does not record yet.
        """
        if not self.ready:
            for _ in self._events():
                pass  # none is left: messages wait
            self.ready = self.closed is None and self._is_paused

    def _received(self, events: Iterator[Event]) -> Iterator[ReceivedMessages]:
        for event in events:
            if not isinstance(event, Deliveries):
                continue
            if not event.advisory:
                yield ReceivedMessages(event.bodies, event.redelivered, event.batched)
            if self._mode is AckMode.CLIENT and len(event.ids) > 2:
                ids = event.ids[:: len(event.ids) - 1].copy()  # the first and the last
            else:
                ids = event.ids.copy()
            self._unacked.append((event.destination, ids, len(event.ids)))

    def settle(self) -> None:
        if self.closed is None and self._unacked:
            if self._mode is AckMode.CLIENT:
                destination, last_ids, _ = self._unacked[-1]
                count = sum(count for _, _, count in self._unacked)
                first, last = self._unacked[0][1][0].tobytes(), last_ids[-1].tobytes()
                self._connection.acknowledge_span(_NUMBER, destination, first, last, count)
            else:
                kind = AckType.INDIVIDUAL if self._mode is AckMode.INDIVIDUAL else AckType.STANDARD
                for destination, ids, _ in self._unacked:
                    self._connection.acknowledge(_NUMBER, destination, ids, ack_type=kind)
        self._unacked.clear()
        self.flush()

    def _attach(self, agreement: Agreement) -> int:
        options = self._group.target.options
        return self._connection.add_consumer(
            _NUMBER,
            self._destination,
            prefetch=self.window,
            selector=options.selector,
            subscription=options.subscription,
        )
