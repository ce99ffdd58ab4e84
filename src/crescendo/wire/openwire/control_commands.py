"""Which commands do OpenWire peers exchange besides messages?

Each is a value with the fields of the specification, in their order; the annotation of a field gives its type and, if
it came later, the version that introduced it. Values only.
"""

from enum import IntEnum
from typing import Annotated

from crescendo.wire.openwire.identifiers import (
    BrokerId,
    ConnectionId,
    ConsumerId,
    Destination,
    ProducerId,
    SessionId,
    TransactionId,
)
from crescendo.wire.openwire.structures import (
    ARRAY,
    NESTED,
    Binary,
    Boolean,
    Byte,
    Failure,
    Int,
    Long,
    Magic,
    Since,
    Structure,
    Text,
    structure,
)

MAGIC = b"ActiveMQ"
LAST_DELIVERED_UNKNOWN = -2
REMOVE_DESTINATION = 1
"""An operation of DestinationInfo; 0 adds one."""


@structure(1)
class WireFormatInfo(Structure, frozen=True):
    """The first thing that both peers send."""

    magic: Magic = MAGIC
    version: Int = 1
    properties: Binary = None


class OpenWireCommand(Structure, frozen=True):
    """What may be answered with a response."""

    command_id: Int = 0
    response_required: Boolean = False


@structure(2)
class BrokerInfo(OpenWireCommand, frozen=True):
    broker_id: Annotated[BrokerId | None, NESTED] = None
    url: Text = None
    peers: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None
    name: Text = None
    slave: Boolean = False
    master: Boolean = False
    fault_tolerant: Boolean = False
    duplex: Annotated[Boolean, Since(2)] = False
    network: Annotated[Boolean, Since(2)] = False
    connection: Annotated[Long, Since(2)] = 0
    upload_url: Annotated[Text, Since(3)] = None
    network_properties: Annotated[Text, Since(3)] = None


@structure(3)
class ConnectionInfo(OpenWireCommand, frozen=True):
    connection_id: Annotated[ConnectionId | None, NESTED] = None
    client_id: Text = None
    password: Text = None
    user: Text = None
    broker_path: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None
    broker_master_connector: Boolean = False
    manageable: Boolean = False
    client_master: Annotated[Boolean, Since(2)] = True
    fault_tolerant: Annotated[Boolean, Since(6)] = False
    failover_reconnect: Annotated[Boolean, Since(6)] = False
    client_ip: Annotated[Text, Since(8)] = None


@structure(4)
class SessionInfo(OpenWireCommand, frozen=True):
    session_id: Annotated[SessionId | None, NESTED] = None


@structure(5)
class ConsumerInfo(OpenWireCommand, frozen=True):
    consumer_id: Annotated[ConsumerId | None, NESTED] = None
    browser: Boolean = False
    destination: Annotated[Destination | None, NESTED] = None
    prefetch: Int = 0
    maximum_pending: Int = 0
    dispatch_async: Boolean = True
    selector: Text = None
    client_id: Annotated[Text, Since(10)] = None
    subscription_name: Text = None
    no_local: Boolean = False
    exclusive: Boolean = False
    retroactive: Boolean = False
    priority: Byte = 0
    broker_path: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None
    additional_predicate: Annotated[Structure | None, NESTED] = None
    network: Boolean = False
    optimized_acknowledge: Boolean = False
    no_range_acks: Boolean = False
    network_consumer_path: Annotated[tuple[Structure | None, ...] | None, ARRAY, Since(4)] = None


@structure(6)
class ProducerInfo(OpenWireCommand, frozen=True):
    producer_id: Annotated[ProducerId | None, NESTED] = None
    destination: Annotated[Destination | None, NESTED] = None
    broker_path: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None
    dispatch_async: Annotated[Boolean, Since(2)] = True
    window_bytes: Annotated[Int, Since(3)] = 0


class TransactionType(IntEnum):
    """What happens to a local transaction."""

    BEGIN = 0
    COMMIT = 2
    ROLLBACK = 4


@structure(7)
class TransactionInfo(OpenWireCommand, frozen=True):
    connection_id: Annotated[ConnectionId | None, NESTED] = None
    transaction_id: Annotated[TransactionId | None, NESTED] = None
    type: Byte = TransactionType.BEGIN


@structure(8)
class DestinationInfo(OpenWireCommand, frozen=True):
    connection_id: Annotated[ConnectionId | None, NESTED] = None
    destination: Annotated[Destination | None, NESTED] = None
    operation: Byte = 0
    timeout_ms: Long = 0
    broker_path: Annotated[tuple[Structure | None, ...] | None, ARRAY] = None


@structure(9)
class RemoveSubscriptionInfo(OpenWireCommand, frozen=True):
    connection_id: Annotated[ConnectionId | None, NESTED] = None
    subscription_name: Text = None
    client_id: Text = None


@structure(10)
class KeepAliveInfo(OpenWireCommand, frozen=True):
    pass


@structure(11)
class ShutdownInfo(OpenWireCommand, frozen=True):
    pass


@structure(12)
class RemoveInfo(OpenWireCommand, frozen=True):
    object_id: Annotated[ConnectionId | SessionId | ConsumerId | ProducerId | None, NESTED] = None
    last_delivered: Annotated[Long, Since(5)] = LAST_DELIVERED_UNKNOWN


@structure(16)
class ConnectionError(OpenWireCommand, frozen=True):
    error: Failure = None
    connection_id: Annotated[ConnectionId | None, NESTED] = None


@structure(17)
class ConsumerControl(OpenWireCommand, frozen=True):
    destination: Annotated[Destination | None, NESTED, Since(6)] = None
    close: Boolean = False
    consumer_id: Annotated[ConsumerId | None, NESTED] = None
    prefetch: Int = 0
    flush: Annotated[Boolean, Since(2)] = False
    start: Annotated[Boolean, Since(2)] = False
    stop: Annotated[Boolean, Since(2)] = False


@structure(18)
class ConnectionControl(OpenWireCommand, frozen=True):
    close: Boolean = False
    exit: Boolean = False
    fault_tolerant: Boolean = False
    resume: Boolean = False
    suspend: Boolean = False
    connected_brokers: Annotated[Text, Since(6)] = None
    reconnect_to: Annotated[Text, Since(6)] = None
    rebalance: Annotated[Boolean, Since(6)] = False
    token: Annotated[Binary, Since(8)] = None


@structure(19)
class ProducerAck(OpenWireCommand, frozen=True):
    producer_id: Annotated[ProducerId | None, NESTED] = None
    size_bytes: Int = 0


@structure(30)
class Response(OpenWireCommand, frozen=True):
    correlation_id: Int = 0


@structure(31)
class ExceptionResponse(Response, frozen=True):
    error: Failure = None


@structure(32)
class DataResponse(Response, frozen=True):
    data: Annotated[Structure | None, NESTED] = None


@structure(34)
class IntegerResponse(Response, frozen=True):
    result: Int = 0
