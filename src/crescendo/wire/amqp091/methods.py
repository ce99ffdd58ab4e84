"""Which methods can AMQP 0-9-1 peers send on a channel?

Each method is a value with the field names of the specification; the annotation of a field gives its type. Includes the
extensions of RabbitMQ that others adopted: confirms, nack, exchange bindings. Defines neither method codes nor the
order of methods.
"""

from msgspec import Struct

from crescendo.wire.amqp091.fields import Bit, FieldTable, Long, LongLong, LongString, Short, ShortString


class Method(Struct, frozen=True):
    """A request, an answer or a notification from one peer to the other."""


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


Content = BasicPublish | BasicReturn | BasicDeliver | BasicGetOk
"""The methods that are followed by a content header and a body."""
