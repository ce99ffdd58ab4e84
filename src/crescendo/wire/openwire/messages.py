"""What does a message look like, and how is it dispatched and acknowledged?

The fields and their order are those of the OpenWire specification and its later versions. The content of a bytes
message is its body; other kinds wrap theirs. Values only.
"""

from enum import IntEnum
from typing import Annotated

from crescendo.wire.openwire.control_commands import OpenWireCommand
from crescendo.wire.openwire.identifiers import ConsumerId, Destination, MessageId, ProducerId, TransactionId
from crescendo.wire.openwire.structures import (
    ARRAY,
    NESTED,
    Binary,
    Boolean,
    Byte,
    Content,
    Failure,
    Int,
    Long,
    Since,
    Structure,
    Text,
    structure,
)


class AckType(IntEnum):
    """What a client says about messages."""

    DELIVERED = 0  # more may be dispatched, although these are not consumed yet
    POISON = 1  # it cannot be processed: to the dead letters
    STANDARD = 2  # consumed, up to and including the last one named
    REDELIVERED = 3  # it will be delivered again by the client itself
    INDIVIDUAL = 4  # this one is consumed, whatever became of the earlier ones


@structure(23)
class Message(OpenWireCommand, frozen=True):
    """A message without a body; the kinds with one have the same fields."""

    producer_id: Annotated[ProducerId | None, NESTED] = None
    destination: Annotated[Destination | None, NESTED] = None
    transaction_id: Annotated[TransactionId | None, NESTED] = None
    original_destination: Annotated[Destination | None, NESTED] = None
    message_id: Annotated[MessageId | None, NESTED] = None
    original_transaction_id: Annotated[TransactionId | None, NESTED] = None
    group_id: Text = None
    group_sequence: Int = 0
    correlation_id: Text = None
    persistent: Boolean = False
    expiration_ms: Long = 0
    priority: Byte = 4
    reply_to: Annotated[Destination | None, NESTED] = None
    timestamp_ms: Long = 0
    message_type: Text = None
    content: Content = None
    properties: Binary = None
    data_structure: Annotated[Structure | None, NESTED] = None
    target_consumer_id: Annotated[ConsumerId | None, NESTED] = None
    compressed: Boolean = False
    redelivery_counter: Int = 0
    broker_path: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None
    arrival_ms: Long = 0
    user_id: Text = None
    received_by_bridge: Boolean = False
    droppable: Annotated[Boolean, Since(2)] = False
    cluster: Annotated[tuple[Structure | None, ...] | None, ARRAY, Since(3)] = None
    broker_in_ms: Annotated[Long, Since(3)] = 0
    broker_out_ms: Annotated[Long, Since(3)] = 0
    group_first_for_consumer: Annotated[Boolean, Since(10)] = False


@structure(24)
class BytesMessage(Message, frozen=True):
    pass


@structure(25)
class MapMessage(Message, frozen=True):
    pass


@structure(26)
class ObjectMessage(Message, frozen=True):
    pass


@structure(27)
class StreamMessage(Message, frozen=True):
    pass


@structure(28)
class TextMessage(Message, frozen=True):
    """Its content is the length of the text in four bytes, and the text."""


@structure(29)
class BlobMessage(Message, frozen=True):
    remote_url: Annotated[Text, Since(3)] = None
    mime_type: Annotated[Text, Since(3)] = None
    deleted_by_broker: Annotated[Boolean, Since(3)] = False


@structure(21)
class MessageDispatch(OpenWireCommand, frozen=True):
    consumer_id: Annotated[ConsumerId | None, NESTED] = None
    destination: Annotated[Destination | None, NESTED] = None
    message: Annotated[Message | None, NESTED] = None
    redelivery_counter: Int = 0


@structure(22)
class MessageAck(OpenWireCommand, frozen=True):
    destination: Annotated[Destination | None, NESTED] = None
    transaction_id: Annotated[TransactionId | None, NESTED] = None
    consumer_id: Annotated[ConsumerId | None, NESTED] = None
    ack_type: Byte = AckType.STANDARD
    first_message_id: Annotated[MessageId | None, NESTED] = None
    last_message_id: Annotated[MessageId | None, NESTED] = None
    message_count: Int = 0
    poison_cause: Annotated[Failure, Since(7)] = None


@structure(20)
class MessagePull(OpenWireCommand, frozen=True):
    consumer_id: Annotated[ConsumerId | None, NESTED] = None
    destination: Annotated[Destination | None, NESTED] = None
    timeout_ms: Long = 0
    correlation_id: Annotated[Text, Since(3)] = None
    message_id: Annotated[MessageId | None, NESTED, Since(3)] = None
