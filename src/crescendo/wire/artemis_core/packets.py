"""Which packets do Core peers exchange?

Numbers and fields are those of Artemis 2.44; `packet_fields` encodes and decodes them. Values only.
"""

from enum import IntEnum
from typing import Annotated

from crescendo.wire.artemis_core.packet_fields import (
    OPTIONAL,
    Boolean,
    Byte,
    Content,
    Headers,
    Int,
    Long,
    Message,
    Name,
    Names,
    NullableName,
    NullableString,
    OptionalBoolean,
    OptionalInt,
    OptionalLong,
    OptionalName,
    Packet,
    RoutingTypes,
    Since,
    String,
    packet,
)

FIRST_VERSION, LAST_VERSION = 130, 136
"""Of Artemis 2.7, the first that answers messages one by one, and of Artemis 2.37."""
CLIENT_ID_SINCE = 131
NO_CORRELATION = -1


class RoutingType(IntEnum):
    """Whether a message goes to every queue of an address, or to one of them."""

    MULTICAST = 0
    ANYCAST = 1


class ErrorCode(IntEnum):
    """The errors that a client reacts to; all others it only reports."""

    QUEUE_EXISTS = 101
    ADDRESS_EXISTS = 107
    INCOMPATIBLE_VERSIONS = 108


# -- the connection ---------------------------------------------------------------------------------------------------


@packet(10)
class PingPacket(Packet, frozen=True):
    """The broker returns it; it closes a connection that is silent for longer."""

    ttl_ms: Long = 0


@packet(11)
class Disconnect(Packet, frozen=True):
    node_id: NullableName = None


@packet(124)
class DisconnectV2(Disconnect, frozen=True):
    pass


@packet(-19)
class DisconnectV3(Disconnect, frozen=True):
    pass


@packet(12)
class DisconnectConsumer(Packet, frozen=True):
    consumer: Long = 0


@packet(20)
class ExceptionPacket(Packet, frozen=True):
    """Why a request or a message was refused."""

    code: Int = 0
    reason: NullableString = None
    correlation: Annotated[int | None, "long", OPTIONAL] = None


@packet(21)
class NullResponse(Packet, frozen=True):
    """A request or a message is processed."""

    correlation: Annotated[int | None, "long", OPTIONAL] = None


@packet(22)
class PacketsConfirmed(Packet, frozen=True):
    """For clients that resume a session, which we do not."""

    command_id: Int = 0


@packet(30)
class CreateSession(Packet, frozen=True):
    name: String
    channel: Long
    version: Int
    user: NullableString = None
    password: NullableString = None
    min_large_bytes: Int = 2**31 - 1
    xa: Boolean = False
    commits_sends: Boolean = True  # on its own, as it does for sessions without transactions
    commits_acks: Boolean = True
    confirmation_window: Int = -1
    pre_acknowledge: Boolean = False
    default_address: NullableString = None


@packet(-18)
class CreateSessionV2(CreateSession, frozen=True):
    client_id: NullableString = None


@packet(31)
class SessionCreated(Packet, frozen=True):
    server_version: Int = 0


# -- addresses and queues ---------------------------------------------------------------------------------------------


@packet(-11)
class CreateAddress(Packet, frozen=True):
    address: Name
    routing_types: RoutingTypes
    response_required: Boolean = True
    auto_created: Boolean = True


@packet(-12)
class CreateQueue(Packet, frozen=True):
    address: Name
    queue: Name
    selector: NullableName = None
    durable: Boolean = True
    temporary: Boolean = False
    response_required: Boolean = True
    auto_created: Boolean = True
    routing_type: Byte = RoutingType.ANYCAST
    max_consumers: Int = -1
    purge_on_no_consumers: Boolean = False
    exclusive: OptionalBoolean = None
    last_value: OptionalBoolean = None
    last_value_key: OptionalName = None
    non_destructive: OptionalBoolean = None
    consumers_before_dispatch: OptionalInt = None
    delay_before_dispatch_ms: OptionalLong = None
    group_rebalance: OptionalBoolean = None
    group_buckets: OptionalInt = None
    auto_delete: OptionalBoolean = None  # when its last consumer leaves; None: as the address settings say
    auto_delete_delay_ms: OptionalLong = None
    auto_delete_messages: OptionalLong = None  # a queue with more is kept; -1: none is


@packet(35)
class DeleteQueue(Packet, frozen=True):
    queue: Name


@packet(45)
class QueryQueue(Packet, frozen=True):
    queue: Name


@packet(-14)
class QueueInfo(Packet, frozen=True):
    exists: Boolean = False
    durable: Boolean = False
    temporary: Boolean = False
    consumers: Int = 0
    messages: Long = 0
    selector: NullableName = None
    address: NullableName = None
    name: NullableName = None
    creates_queues: Boolean = False  # on demand


@packet(49)
class QueryAddress(Packet, frozen=True):
    address: Name


@packet(-15)
class AddressInfo(Packet, frozen=True):
    exists: Boolean = False
    queues: Names = ()
    creates_queues: Boolean = False
    creates_addresses: Boolean = False


@packet(-22)
class AddressInfoV5(AddressInfo, frozen=True):
    pass


# -- the session ------------------------------------------------------------------------------------------------------


@packet(67)
class StartSession(Packet, frozen=True):
    """Before it, nothing is delivered. It is not answered."""


@packet(68)
class StopSession(Packet, frozen=True):
    pass


@packet(69)
class CloseSession(Packet, frozen=True):
    pass


@packet(43)
class Commit(Packet, frozen=True):
    correlation: Annotated[Long, Since(132)] = NO_CORRELATION


@packet(44)
class Rollback(Packet, frozen=True):
    last_was_delivered: Boolean = True


# -- sending ----------------------------------------------------------------------------------------------------------


@packet(-20)
class CreateProducer(Packet, frozen=True):
    """It is not answered."""

    producer: Int
    address: NullableName = None


@packet(-21)
class RemoveProducer(Packet, frozen=True):
    producer: Int


@packet(71)
class SendMessage(Packet, frozen=True):
    message: Message
    response_required: Boolean = False
    correlation: Long = 0
    producer: Annotated[Int, Since(134)] = 0


@packet(79)
class RequestCredits(Packet, frozen=True):
    """Asks for room for this many bytes."""

    credits: Int
    address: Name


@packet(80)
class ProducerCredits(Packet, frozen=True):
    credits: Int
    address: Name


@packet(82)
class ProducerCreditsRefused(Packet, frozen=True):
    """The address is full, and its policy is to refuse."""

    credits: Int
    address: Name


# -- receiving --------------------------------------------------------------------------------------------------------


@packet(40)
class CreateConsumer(Packet, frozen=True):
    """It is answered with what is known about the queue."""

    consumer: Long
    queue: Name
    selector: NullableName = None
    browser: Boolean = False
    response_required: Boolean = True
    priority: Annotated[int | None, "int", OPTIONAL] = 0


@packet(74)
class CloseConsumer(Packet, frozen=True):
    consumer: Long


@packet(70)
class ConsumerCredits(Packet, frozen=True):
    """The broker may send this many bytes more; it stops when less than one byte is left."""

    consumer: Long
    credits: Int


@packet(75)
class ReceiveMessage(Packet, frozen=True):
    message: Message
    consumer: Long = 0
    deliveries: Int = 1


@packet(76)
class ReceiveLargeMessage(Packet, frozen=True):
    """The headers of a message whose body follows in parts."""

    consumer: Long
    deliveries: Int
    body_bytes: Long
    message: Headers


@packet(77)
class ReceivePart(Packet, frozen=True):
    content: Content
    continues: Boolean
    consumer: Long


@packet(41)
class Acknowledge(Packet, frozen=True):
    """This message and all that were delivered to the consumer before it."""

    consumer: Long
    message_id: Long
    response_required: Boolean = False


@packet(81)
class AcknowledgeOne(Packet, frozen=True):
    consumer: Long
    message_id: Long
    response_required: Boolean = False
