"""How are the properties of a message encoded?

The content header of class basic: the size of the body and up to fourteen optional properties. An absent property is
None and takes no bytes.
"""

import struct
from typing import NamedTuple

from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.fields import FieldTable, LongLong, Octet, ShortString, field_specs
from crescendo.wire.amqp091.types import number_at

BASIC = 60
TRANSIENT, PERSISTENT = 1, 2

_START = struct.Struct(">HHQH")
_FLAGS = struct.Struct(">H")
_MORE_FLAGS = 1
_FIRST_BIT = 15


class Properties(Struct, frozen=True):
    """The properties of class basic. `expiration` is text: milliseconds, in decimal."""

    content_type: ShortString | None = None
    content_encoding: ShortString | None = None
    headers: FieldTable | None = None
    delivery_mode: Octet | None = None
    priority: Octet | None = None
    correlation_id: ShortString | None = None
    reply_to: ShortString | None = None
    expiration: ShortString | None = None
    message_id: ShortString | None = None
    timestamp: LongLong | None = None
    type: ShortString | None = None
    user_id: ShortString | None = None
    app_id: ShortString | None = None
    cluster_id: ShortString | None = None


class Header(NamedTuple):
    """A content header: the size of the body, and the properties."""

    body_size: int
    properties: Properties


NO_PROPERTIES = Properties()
_FIELDS = [
    (1 << (_FIRST_BIT - index), name, kind)
    for index, (name, kind) in enumerate(field_specs(Properties))
    if kind is not None
]
_KNOWN_FLAGS = sum(flag for flag, _, _ in _FIELDS)


def encode_header(body_size: int, properties: Properties) -> bytes:
    """The payload of a header frame."""
    flags = 0
    values = bytearray()
    for flag, name, kind in _FIELDS:
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            values += kind.write(value)
    return _START.pack(BASIC, 0, body_size, flags) + values


def decode_header(payload: memoryview) -> Header:
    if len(payload) < _START.size:
        raise PeerError("a truncated content header")
    class_id, weight, body_size, flags = _START.unpack_from(payload)
    if class_id != BASIC or weight:
        raise PeerError(f"a content header of class {class_id} and weight {weight}")
    if flags == 0 and len(payload) == _START.size:
        return Header(body_size, NO_PROPERTIES)
    position = _START.size
    more = flags
    while more & _MORE_FLAGS:
        more, position = number_at(_FLAGS, payload, position)
        if more & ~_MORE_FLAGS:
            raise PeerError("a property that class basic does not have")
    if flags & ~_KNOWN_FLAGS & ~_MORE_FLAGS:
        raise PeerError("a property that class basic does not have")
    values = {}
    for flag, name, kind in _FIELDS:
        if flags & flag:
            values[name], position = kind.read(payload, position)
    if position != len(payload):
        raise PeerError(f"{len(payload) - position} trailing bytes after the properties of a message")
    return Header(body_size, Properties(**values))
