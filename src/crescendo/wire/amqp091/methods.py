"""What can two AMQP 0-9-1 peers say to each other?

Each method is a value with the field names of the specification; one table maps class and method numbers to values
and serves both directions. Includes what RabbitMQ added and others adopted: confirms, nack, blocked, exchange
bindings. Says nothing about the order in which methods may come.
"""

from typing import Any, ClassVar

from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.fields import (
    Bit,
    FieldTable,
    Long,
    LongLong,
    LongString,
    Octet,
    Place,
    Short,
    ShortString,
    places_of,
    read_fields,
    write_fields,
)

_CODE_BYTES = 4


class Method(Struct, frozen=True):
    """A method; its code is class and method number, 16 bits each."""

    code: ClassVar[int]


class ConnectionStart(Method, frozen=True):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable = {}
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


class ConnectionStartOk(Method, frozen=True):
    client_properties: FieldTable = {}
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


class ConnectionSecure(Method, frozen=True):
    challenge: LongString = b""


class ConnectionSecureOk(Method, frozen=True):
    response: LongString = b""


class ConnectionTune(Method, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method, frozen=True):
    virtual_host: ShortString = "/"
    reserved_1: ShortString = ""
    reserved_2: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    reserved_1: ShortString = ""


class ConnectionClose(Method, frozen=True):
    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


class ConnectionCloseOk(Method, frozen=True):
    pass


class ConnectionBlocked(Method, frozen=True):
    reason: ShortString = ""


class ConnectionUnblocked(Method, frozen=True):
    pass


class ChannelOpen(Method, frozen=True):
    reserved_1: ShortString = ""


class ChannelOpenOk(Method, frozen=True):
    reserved_1: LongString = b""


class ChannelFlow(Method, frozen=True):
    active: Bit = True


class ChannelFlowOk(Method, frozen=True):
    active: Bit = True


class ChannelClose(Method, frozen=True):
    reply_code: Short = 200
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


class ChannelCloseOk(Method, frozen=True):
    pass


class ExchangeDeclare(Method, frozen=True):
    reserved_1: Short = 0
    exchange: ShortString = ""
    type: ShortString = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = {}


class ExchangeDeclareOk(Method, frozen=True):
    pass


class ExchangeDelete(Method, frozen=True):
    reserved_1: Short = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    no_wait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    pass


class ExchangeBind(Method, frozen=True):
    reserved_1: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = {}


class ExchangeBindOk(Method, frozen=True):
    pass


class ExchangeUnbind(Method, frozen=True):
    reserved_1: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = {}


class ExchangeUnbindOk(Method, frozen=True):
    pass


class QueueDeclare(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = {}


class QueueDeclareOk(Method, frozen=True):
    queue: ShortString = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = {}


class QueueBindOk(Method, frozen=True):
    pass


class QueueUnbind(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: FieldTable = {}


class QueueUnbindOk(Method, frozen=True):
    pass


class QueuePurge(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    no_wait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    message_count: Long = 0


class QueueDelete(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    message_count: Long = 0


class BasicQos(Method, frozen=True):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_qos: Bit = False


class BasicQosOk(Method, frozen=True):
    pass


class BasicConsume(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = {}


class BasicConsumeOk(Method, frozen=True):
    consumer_tag: ShortString = ""


class BasicCancel(Method, frozen=True):
    consumer_tag: ShortString = ""
    no_wait: Bit = False


class BasicCancelOk(Method, frozen=True):
    consumer_tag: ShortString = ""


class BasicPublish(Method, frozen=True):
    reserved_1: Short = 0
    exchange: ShortString = ""
    routing_key: ShortString = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    reply_code: Short = 0
    reply_text: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""


class BasicDeliver(Method, frozen=True):
    consumer_tag: ShortString = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""


class BasicGet(Method, frozen=True):
    reserved_1: Short = 0
    queue: ShortString = ""
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""
    message_count: Long = 0


class BasicGetEmpty(Method, frozen=True):
    reserved_1: ShortString = ""


class BasicAck(Method, frozen=True):
    delivery_tag: LongLong = 0
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    delivery_tag: LongLong = 0
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    pass


class BasicNack(Method, frozen=True):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


class ConfirmSelect(Method, frozen=True):
    no_wait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    pass


class TxSelect(Method, frozen=True):
    pass


class TxSelectOk(Method, frozen=True):
    pass


class TxCommit(Method, frozen=True):
    pass


class TxCommitOk(Method, frozen=True):
    pass


class TxRollback(Method, frozen=True):
    pass


class TxRollbackOk(Method, frozen=True):
    pass


_NUMBERS: dict[int, dict[int, type[Method]]] = {
    10: {
        10: ConnectionStart, 11: ConnectionStartOk, 20: ConnectionSecure, 21: ConnectionSecureOk,
        30: ConnectionTune, 31: ConnectionTuneOk, 40: ConnectionOpen, 41: ConnectionOpenOk,
        50: ConnectionClose, 51: ConnectionCloseOk, 60: ConnectionBlocked, 61: ConnectionUnblocked,
    },
    20: {
        10: ChannelOpen, 11: ChannelOpenOk, 20: ChannelFlow, 21: ChannelFlowOk, 40: ChannelClose, 41: ChannelCloseOk,
    },
    40: {
        10: ExchangeDeclare, 11: ExchangeDeclareOk, 20: ExchangeDelete, 21: ExchangeDeleteOk,
        30: ExchangeBind, 31: ExchangeBindOk, 40: ExchangeUnbind, 51: ExchangeUnbindOk,
    },
    50: {
        10: QueueDeclare, 11: QueueDeclareOk, 20: QueueBind, 21: QueueBindOk, 30: QueuePurge, 31: QueuePurgeOk,
        40: QueueDelete, 41: QueueDeleteOk, 50: QueueUnbind, 51: QueueUnbindOk,
    },
    60: {
        10: BasicQos, 11: BasicQosOk, 20: BasicConsume, 21: BasicConsumeOk, 30: BasicCancel, 31: BasicCancelOk,
        40: BasicPublish, 50: BasicReturn, 60: BasicDeliver, 70: BasicGet, 71: BasicGetOk, 72: BasicGetEmpty,
        80: BasicAck, 90: BasicReject, 100: BasicRecoverAsync, 110: BasicRecover, 111: BasicRecoverOk, 120: BasicNack,
    },
    85: {10: ConfirmSelect, 11: ConfirmSelectOk},
    90: {10: TxSelect, 11: TxSelectOk, 20: TxCommit, 21: TxCommitOk, 30: TxRollback, 31: TxRollbackOk},
}  # fmt: skip

METHODS: dict[int, tuple[type[Method], tuple[Place, ...]]] = {}
for _class_number, _methods in _NUMBERS.items():
    for _method_number, _cls in _methods.items():
        _cls.code = _class_number << 16 | _method_number
        METHODS[_cls.code] = (_cls, places_of(_cls))

CONTENT_METHODS = (BasicPublish, BasicReturn, BasicDeliver, BasicGetOk)
"""After these a content header and the body follow."""

_SAID_BY_BOTH = {
    ChannelFlow, ChannelFlowOk, ChannelClose, ChannelCloseOk, BasicCancel, BasicCancelOk, BasicAck, BasicNack,
}  # fmt: skip
_ANSWERS = {cls for cls, _ in METHODS.values() if cls.__name__.endswith("Ok")}
SAID_BY_SERVERS = frozenset(_ANSWERS | _SAID_BY_BOTH | {BasicReturn, BasicDeliver, BasicGetEmpty})
SAID_BY_CLIENTS = frozenset({cls for cls, _ in METHODS.values()} - SAID_BY_SERVERS | _SAID_BY_BOTH)
"""On a channel; who says what on channel 0 is the handshake's business."""

Content = BasicPublish | BasicReturn | BasicDeliver | BasicGetOk


def encode_method(method: Method) -> bytes:
    """The payload of a method frame."""
    return method.code.to_bytes(_CODE_BYTES, "big") + write_fields(METHODS[method.code][1], method)


def decode_method(payload: memoryview) -> Method:
    if len(payload) < _CODE_BYTES:
        raise PeerError("a method without a number")
    code = int.from_bytes(payload[:_CODE_BYTES], "big")
    known: tuple[Any, tuple[Place, ...]] | None = METHODS.get(code)
    if known is None:
        raise PeerError(f"a method with the numbers {code >> 16}, {code & 0xFFFF}, which AMQP 0-9-1 does not have")
    cls, places = known
    values, end = read_fields(places, payload, _CODE_BYTES)
    if end != len(payload):
        raise PeerError(f"{len(payload) - end} bytes behind the arguments of {cls.__name__}")
    method: Method = cls(*values)
    return method
