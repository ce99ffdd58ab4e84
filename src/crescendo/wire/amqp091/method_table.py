"""Which code does a method have, which peer may send it, and how is it encoded?

One table maps class and method numbers to values, for both directions.
"""

from typing import Any

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091 import connection_methods as c
from crescendo.wire.amqp091 import methods as m
from crescendo.wire.amqp091.fields import FieldSpec, field_specs, read_fields, write_fields
from crescendo.wire.amqp091.methods import Method

CODE_BYTES = 4

_NUMBERS: dict[int, dict[int, type[Method]]] = {
    10: {
        10: c.ConnectionStart, 11: c.ConnectionStartOk, 20: c.ConnectionSecure, 21: c.ConnectionSecureOk,
        30: c.ConnectionTune, 31: c.ConnectionTuneOk, 40: c.ConnectionOpen, 41: c.ConnectionOpenOk,
        50: c.ConnectionClose, 51: c.ConnectionCloseOk, 60: c.ConnectionBlocked, 61: c.ConnectionUnblocked,
    },
    20: {
        10: m.ChannelOpen, 11: m.ChannelOpenOk, 20: m.ChannelFlow, 21: m.ChannelFlowOk,
        40: m.ChannelClose, 41: m.ChannelCloseOk,
    },
    40: {
        10: m.ExchangeDeclare, 11: m.ExchangeDeclareOk, 20: m.ExchangeDelete, 21: m.ExchangeDeleteOk,
        30: m.ExchangeBind, 31: m.ExchangeBindOk, 40: m.ExchangeUnbind, 51: m.ExchangeUnbindOk,
    },
    50: {
        10: m.QueueDeclare, 11: m.QueueDeclareOk, 20: m.QueueBind, 21: m.QueueBindOk,
        30: m.QueuePurge, 31: m.QueuePurgeOk, 40: m.QueueDelete, 41: m.QueueDeleteOk,
        50: m.QueueUnbind, 51: m.QueueUnbindOk,
    },
    60: {
        10: m.BasicQos, 11: m.BasicQosOk, 20: m.BasicConsume, 21: m.BasicConsumeOk,
        30: m.BasicCancel, 31: m.BasicCancelOk, 40: m.BasicPublish, 50: m.BasicReturn, 60: m.BasicDeliver,
        70: m.BasicGet, 71: m.BasicGetOk, 72: m.BasicGetEmpty, 80: m.BasicAck, 90: m.BasicReject,
        100: m.BasicRecoverAsync, 110: m.BasicRecover, 111: m.BasicRecoverOk, 120: m.BasicNack,
    },
    85: {10: m.ConfirmSelect, 11: m.ConfirmSelectOk},
    90: {10: m.TxSelect, 11: m.TxSelectOk, 20: m.TxCommit, 21: m.TxCommitOk, 30: m.TxRollback, 31: m.TxRollbackOk},
}  # fmt: skip

METHODS: dict[int, tuple[type[Method], tuple[FieldSpec, ...]]] = {
    class_number << 16 | method_number: (cls, field_specs(cls))
    for class_number, methods in _NUMBERS.items()
    for method_number, cls in methods.items()
}
"""By code: class and method number, 16 bits each."""
CODES: dict[type[Method], int] = {cls: code for code, (cls, _) in METHODS.items()}

_SENT_BY_BOTH = {
    m.ChannelFlow, m.ChannelFlowOk, m.ChannelClose, m.ChannelCloseOk,
    m.BasicCancel, m.BasicCancelOk, m.BasicAck, m.BasicNack,
}  # fmt: skip
_ANSWERS = {cls for cls, _ in METHODS.values() if cls.__name__.endswith("Ok")}
_SENT_BY_SERVERS = frozenset(_ANSWERS | _SENT_BY_BOTH | {m.BasicReturn, m.BasicDeliver, m.BasicGetEmpty})
_SENT_BY_CLIENTS = frozenset({cls for cls, _ in METHODS.values()} - _SENT_BY_SERVERS | _SENT_BY_BOTH)


def check_direction(method: Method, *, client: bool) -> None:
    """Refuse a channel method that this peer must not send. Channel 0 is checked by the handshake."""
    if type(method) not in (_SENT_BY_CLIENTS if client else _SENT_BY_SERVERS):
        raise PeerError(f"{type(method).__name__}, which only {'servers' if client else 'clients'} send")


def encode_method(method: Method) -> bytes:
    """The payload of a method frame."""
    code = CODES[type(method)]
    return code.to_bytes(CODE_BYTES, "big") + write_fields(METHODS[code][1], method)


def decode_method(payload: memoryview) -> Method:
    if len(payload) < CODE_BYTES:
        raise PeerError("a method without a code")
    code = int.from_bytes(payload[:CODE_BYTES], "big")
    known: tuple[Any, tuple[FieldSpec, ...]] | None = METHODS.get(code)
    if known is None:
        raise PeerError(f"a method with the numbers {code >> 16}, {code & 0xFFFF}, which AMQP 0-9-1 does not have")
    cls, fields = known
    values, end = read_fields(fields, payload, CODE_BYTES)
    if end != len(payload):
        raise PeerError(f"{len(payload) - end} trailing bytes after the arguments of {cls.__name__}")
    method: Method = cls(*values)
    return method
