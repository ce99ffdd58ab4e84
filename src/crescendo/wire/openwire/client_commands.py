"""Which commands does a client send, and how are they numbered?

Queues them in `outgoing`, encoded in the agreed version. Messages are numbered from 0; all other commands that are
answered have negative ids. One session serves all producers and consumers, which the caller numbers.
"""

from collections import deque
from collections.abc import Callable, Mapping

from crescendo.wire.openwire import control_commands as c
from crescendo.wire.openwire.acks import AckEncoder
from crescendo.wire.openwire.batch import MessageBatch, message_of
from crescendo.wire.openwire.events import Octets
from crescendo.wire.openwire.frames import encode_frame
from crescendo.wire.openwire.identifiers import (
    ConnectionId,
    ConsumerId,
    Destination,
    LocalTransactionId,
    ProducerId,
)
from crescendo.wire.openwire.messages import AckType
from crescendo.wire.openwire.negotiation import FIRST_VERSION
from crescendo.wire.openwire.primitive_map import Primitive
from crescendo.wire.openwire.structures import Structure

SESSION = 1


class ClientCommands:
    """The sending half of a client."""

    def __init__(self, connection_id: str, client_id: str) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.connection_id = connection_id
        self._client_id = client_id
        self._version = FIRST_VERSION  # of what is read and written from here on
        self._last_command_id = 0

    @property
    def version(self) -> int:
        """The negotiated version; before that, the first one."""
        return self._version

    def producer_id(self, number: int) -> ProducerId:
        return ProducerId(self.connection_id.encode(), number, SESSION)

    def consumer_id(self, number: int) -> ConsumerId:
        return ConsumerId(self.connection_id, SESSION, number)

    def add_producer(self, number: int, destination: Destination, *, window_bytes: int = 0) -> int:
        """Announce a producer; returns the id of the command, which is answered."""
        command_id = self._next_command_id()
        producer = self.producer_id(number)
        self._send(c.ProducerInfo(command_id, True, producer, destination, window_bytes=window_bytes))
        return command_id

    def add_consumer(
        self,
        number: int,
        destination: Destination,
        *,
        prefetch: int,
        selector: str | None = None,
        subscription: str | None = None,
        browser: bool = False,
    ) -> int:
        """Announce a consumer; returns the id of the command, which is answered. Messages may come before the answer.

        With the name of a subscription it is durable: the topic keeps its messages while it is away.
        """
        command_id = self._next_command_id()
        self._send(
            c.ConsumerInfo(
                command_id,
                True,
                self.consumer_id(number),
                browser,
                destination,
                prefetch,
                selector=selector,
                client_id=None if subscription is None else self._client_id,  # Artemis names the subscription by it
                subscription_name=subscription,
            )
        )
        return command_id

    def remove_consumer(self, number: int, *, last_delivered: int = c.LAST_DELIVERED_UNKNOWN) -> int:
        """End a consumer; what it did not acknowledge is delivered again, as redelivered up to this broker sequence."""
        return self._remove(self.consumer_id(number), last_delivered)

    def remove_producer(self, number: int) -> int:
        return self._remove(self.producer_id(number))

    def remove_subscription(self, name: str) -> int:
        """Delete a durable subscription of this client, which must not be in use."""
        command_id = self._next_command_id()
        connection = ConnectionId(self.connection_id)
        self._send(c.RemoveSubscriptionInfo(command_id, True, connection, name, self._client_id))
        return command_id

    def delete_destination(self, destination: Destination) -> int:
        """Delete a queue with all it holds. Brokers refuse that while it has a consumer."""
        command_id = self._next_command_id()
        connection = ConnectionId(self.connection_id)
        self._send(c.DestinationInfo(command_id, True, connection, destination, c.REMOVE_DESTINATION))
        return command_id

    def send(
        self,
        number: int,
        body: bytes,
        *,
        producer: int,
        destination: Destination,
        response_required: bool = True,
        persistent: bool = False,
        priority: int | None = None,
        expiration_ms: int = 0,
        properties: Mapping[str, Primitive] | None = None,
        transaction: int | None = None,
    ) -> None:
        """Queue one message through the scalar path."""
        message = message_of(
            number,
            body,
            producer=self.producer_id(producer),
            destination=destination,
            response_required=response_required,
            persistent=persistent,
            priority=priority,
            expiration_ms=expiration_ms,
            properties=properties,
            transaction=self._transaction_id(transaction),
        )
        self._send(message)

    def send_batch(self, batch: MessageBatch, first_number: int, count: int, *, expiration_ms: int = 0) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(first_number, count, expiration_ms=expiration_ms))

    def acknowledge(
        self,
        consumer: int,
        destination: bytes,
        ids: Octets,
        *,
        ack_type: AckType = AckType.STANDARD,
        transaction: int | None = None,
        answered: bool = False,
    ) -> int:
        """Acknowledge each of these messages on its own; in all modes but individual, earlier ones are included."""
        return self._acknowledge(consumer, destination, ack_type, transaction, answered, lambda acks: acks.each(ids))

    def acknowledge_span(
        self,
        consumer: int,
        destination: bytes,
        first_id: bytes,
        last_id: bytes,
        count: int,
        *,
        ack_type: AckType = AckType.STANDARD,
        transaction: int | None = None,
        answered: bool = False,
    ) -> int:
        """Acknowledge `count` consecutive messages at once."""
        return self._acknowledge(
            consumer, destination, ack_type, transaction, answered, lambda acks: acks.span(first_id, last_id, count)
        )

    def _acknowledge(
        self,
        consumer: int,
        destination: bytes,
        ack_type: AckType,
        transaction: int | None,
        answered: bool,
        encode: Callable[[AckEncoder], memoryview],
    ) -> int:
        command_id = self._next_command_id() if answered else 0
        acks = AckEncoder(
            self._version,
            command_id=command_id,
            response_required=answered,
            destination=destination,
            transaction=self._transaction_id(transaction),
            consumer=self.consumer_id(consumer),
            ack_type=ack_type,
        )
        self.outgoing.append(encode(acks))
        return command_id

    def begin(self, number: int) -> int:
        return self._transact(number, c.TransactionType.BEGIN)

    def commit(self, number: int) -> int:
        return self._transact(number, c.TransactionType.COMMIT)

    def rollback(self, number: int) -> int:
        """Messages that were acknowledged in the transaction stay with their consumer until that is removed."""
        return self._transact(number, c.TransactionType.ROLLBACK)

    def _next_command_id(self) -> int:
        """Negative, so that messages can be numbered from 0."""
        self._last_command_id -= 1
        return self._last_command_id

    def _transaction_id(self, number: int | None) -> LocalTransactionId | None:
        return None if number is None else LocalTransactionId(number, ConnectionId(self.connection_id))

    def _transact(self, number: int, step: c.TransactionType) -> int:
        command_id = self._next_command_id()
        transaction = self._transaction_id(number)
        self._send(c.TransactionInfo(command_id, True, ConnectionId(self.connection_id), transaction, step))
        return command_id

    def _remove(
        self, what: ConnectionId | ConsumerId | ProducerId, last_delivered: int = c.LAST_DELIVERED_UNKNOWN
    ) -> int:
        command_id = self._next_command_id()
        self._send(c.RemoveInfo(command_id, True, what, last_delivered))
        return command_id

    def _send(self, command: Structure) -> None:
        self.outgoing.append(memoryview(encode_frame(command, self._version)))
