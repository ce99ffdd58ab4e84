"""Which packets does a client send, and how are they numbered?

Queues them in `outgoing`, encoded in the agreed version. Messages are numbered from 0, and a response names one of
them. All other requests that are answered are answered in their order, and are numbered from 1. One session serves all
producers and consumers, which the caller numbers.
"""

from collections import deque
from collections.abc import Mapping

from crescendo.wire.artemis_core import packets as p
from crescendo.wire.artemis_core.acks import encode_acknowledgements
from crescendo.wire.artemis_core.batch import SendBatch, packet_of
from crescendo.wire.artemis_core.events import Octets
from crescendo.wire.artemis_core.frames import SESSION_CHANNEL, encode_frame
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.artemis_core.properties import Property

_PRODUCERS_SINCE = 134
CREATE_SESSION = 0
"""The number of the request that every connection begins with."""


class ClientPackets:
    """The sending half of a client."""

    def __init__(self, version: int) -> None:
        self.outgoing: deque[memoryview] = deque()
        self._version = version  # of what is read and written from here on
        self._requested = CREATE_SESSION  # the number of the last request
        self._unanswered: deque[int] = deque()

    @property
    def version(self) -> int:
        return self._version

    # -- addresses and queues --------------------------------------------------------------------------------------

    def query_queue(self, queue: str) -> int:
        """Ask what is known about a queue; answered with QueueInfo."""
        return self._request(p.QueryQueue(queue))

    def query_address(self, address: str) -> int:
        """Ask what is known about an address; answered with AddressInfo."""
        return self._request(p.QueryAddress(address))

    def create_address(self, address: str, routing_type: p.RoutingType) -> int:
        return self._request(p.CreateAddress(address, (routing_type,)))

    def create_queue(
        self,
        address: str,
        queue: str,
        *,
        routing_type: p.RoutingType = p.RoutingType.ANYCAST,
        selector: str | None = None,
        durable: bool = True,
        temporary: bool = False,
        max_consumers: int = -1,
        auto_delete: bool | None = None,
    ) -> int:
        """Create a queue: one that is shared, or a subscription. A temporary one ends with the session.

        `auto_delete`: it ends when its last consumer leaves, whatever it holds. None: as the address settings say.
        """
        delay_ms, messages = (0, -1) if auto_delete else (None, None)
        return self._request(
            p.CreateQueue(
                address,
                queue,
                selector,
                durable,
                temporary,
                auto_created=True,
                routing_type=routing_type,
                max_consumers=max_consumers,
                auto_delete=auto_delete,
                auto_delete_delay_ms=delay_ms,
                auto_delete_messages=messages,
            )
        )

    def delete_queue(self, queue: str) -> int:
        """Delete a queue or a subscription, which must not be in use."""
        return self._request(p.DeleteQueue(queue))

    # -- sending ---------------------------------------------------------------------------------------------------

    def add_producer(self, number: int, address: str) -> None:
        """Announce a producer, for the broker's own figures; older versions do without."""
        if self._version >= _PRODUCERS_SINCE:
            self._send(p.CreateProducer(number, address))

    def request_credits(self, address: str, size_bytes: int) -> None:
        """Ask for room for this many bytes. The broker grants it when the address has it."""
        self._send(p.RequestCredits(size_bytes, address))

    def send(
        self,
        number: int,
        body: bytes,
        *,
        producer: int,
        address: str,
        routing_type: p.RoutingType = p.RoutingType.ANYCAST,
        response_required: bool = True,
        durable: bool = False,
        priority: int | None = None,
        expiration_ms: int = 0,
        properties: Mapping[str, Property] | None = None,
    ) -> None:
        """Queue one message through the scalar path."""
        packet = packet_of(
            number,
            body,
            producer=producer,
            address=address,
            routing_type=routing_type,
            response_required=response_required,
            durable=durable,
            priority=priority,
            expiration_ms=expiration_ms,
            properties=properties,
        )
        self._send(packet)

    def send_batch(self, batch: SendBatch, first_number: int, count: int, *, expiration_ms: int = 0) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(first_number, count, expiration_ms=expiration_ms))

    # -- receiving -------------------------------------------------------------------------------------------------

    def add_consumer(self, number: int, queue: str, *, selector: str | None = None, browser: bool = False) -> int:
        """Announce a consumer; answered with QueueInfo. Nothing is delivered before it has credit and the session
        has started."""
        return self._request(p.CreateConsumer(number, queue, selector, browser))

    def remove_consumer(self, number: int) -> int:
        """End a consumer; what it did not acknowledge is delivered again."""
        return self._request(p.CloseConsumer(number))

    def grant(self, consumer: int, size_bytes: int) -> None:
        """The broker may deliver while any byte of the window is left, so one byte is enough for one message."""
        self._send(p.ConsumerCredits(consumer, size_bytes))

    def start(self) -> None:
        """Let messages be delivered."""
        self._send(p.StartSession())

    def acknowledge(self, consumer: int, ids: Octets, *, individual: bool = False, answered: bool = False) -> int:
        """Acknowledge each of these messages: alone, or with all that were delivered before it.

        If it is to be answered, returns the number of the last request.
        """
        self.outgoing.append(
            encode_acknowledgements(
                consumer, ids, version=self._version, individual=individual, response_required=answered
            )
        )
        return [self._next_request() for _ in ids][-1] if answered else 0

    # -- transactions, in a session that has them ------------------------------------------------------------------

    def commit(self) -> int:
        return self._request(p.Commit())

    def rollback(self) -> int:
        """Messages that were delivered in the transaction are delivered again."""
        return self._request(p.Rollback())

    # -- numbers and bytes -----------------------------------------------------------------------------------------

    def _request(self, packet: Packet) -> int:
        self._send(packet)
        return self._next_request()

    def _next_request(self) -> int:
        self._requested += 1
        self._unanswered.append(self._requested)
        return self._requested

    def _send(self, packet: Packet, channel: int = SESSION_CHANNEL) -> None:
        self.outgoing.append(memoryview(encode_frame(packet, self._version, channel)))
