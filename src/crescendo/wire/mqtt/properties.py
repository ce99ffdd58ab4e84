"""What can an MQTT 5 packet carry beyond its fixed fields?

The table of all properties: how each is encoded, on which packets it may appear, whether more than once. Properties are
a mapping from `Property` to a number, text, bytes or flag; those that may repeat hold a tuple. The reader checks all of
that; the connection interprets the values.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.packet_types import PacketType
from crescendo.wire.mqtt.values import (
    Reader,
    encode_binary,
    encode_text,
    encode_u16,
    encode_u32,
    encode_varint,
)


class Property(IntEnum):
    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY_S = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY_S = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE_S = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_S = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


Properties = Mapping[Property, Any]
NO_PROPERTIES: Properties = {}
REPEATABLE = frozenset({Property.SUBSCRIPTION_ID, Property.USER_PROPERTY})


class _Encoding(NamedTuple):
    """How a value is written and read."""

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _flag(reader: Reader) -> bool:
    octet = reader.octet()
    if octet > 1:
        raise PeerError(f"a property is {octet} where only 0 and 1 are valid")
    return octet == 1


def _positive(read: Callable[[Reader], int]) -> Callable[[Reader], int]:
    def checked(reader: Reader) -> int:
        value = read(reader)
        if not value:
            raise PeerError("a property is 0 where 0 is not valid")
        return value

    return checked


def _pair(reader: Reader) -> tuple[str, str]:
    return reader.text(), reader.text()


_FLAG = _Encoding(lambda value: bytes((bool(value),)), _flag)
_U16 = _Encoding(encode_u16, Reader.u16)
_U16_POSITIVE = _Encoding(encode_u16, _positive(Reader.u16))
_U32 = _Encoding(encode_u32, Reader.u32)
_U32_POSITIVE = _Encoding(encode_u32, _positive(Reader.u32))
_VARINT = _Encoding(encode_varint, _positive(Reader.varint))
_TEXT = _Encoding(encode_text, Reader.text)
_BINARY = _Encoding(encode_binary, Reader.binary)
_PAIR = _Encoding(lambda pair: encode_text(pair[0]) + encode_text(pair[1]), _pair)

_WILL_AND_PUBLISH = frozenset({PacketType.WILL, PacketType.PUBLISH})
_AUTHENTICATION = frozenset({PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH})
_WITH_REASON = frozenset(
    {
        PacketType.CONNACK, PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP,
        PacketType.SUBACK, PacketType.UNSUBACK, PacketType.DISCONNECT, PacketType.AUTH,
    }
)  # fmt: skip
_HANDSHAKE = frozenset({PacketType.CONNECT, PacketType.CONNACK})
_CONNACK = frozenset({PacketType.CONNACK})
_CONNECT = frozenset({PacketType.CONNECT})

_TABLE: dict[Property, tuple[_Encoding, frozenset[PacketType]]] = {
    Property.PAYLOAD_FORMAT: (_FLAG, _WILL_AND_PUBLISH),
    Property.MESSAGE_EXPIRY_S: (_U32, _WILL_AND_PUBLISH),
    Property.CONTENT_TYPE: (_TEXT, _WILL_AND_PUBLISH),
    Property.RESPONSE_TOPIC: (_TEXT, _WILL_AND_PUBLISH),
    Property.CORRELATION_DATA: (_BINARY, _WILL_AND_PUBLISH),
    Property.SUBSCRIPTION_ID: (_VARINT, frozenset({PacketType.PUBLISH, PacketType.SUBSCRIBE})),
    Property.SESSION_EXPIRY_S: (_U32, _HANDSHAKE | {PacketType.DISCONNECT}),
    Property.ASSIGNED_CLIENT_ID: (_TEXT, _CONNACK),
    Property.SERVER_KEEP_ALIVE_S: (_U16, _CONNACK),
    Property.AUTHENTICATION_METHOD: (_TEXT, _AUTHENTICATION),
    Property.AUTHENTICATION_DATA: (_BINARY, _AUTHENTICATION),
    Property.REQUEST_PROBLEM_INFORMATION: (_FLAG, _CONNECT),
    Property.WILL_DELAY_S: (_U32, frozenset({PacketType.WILL})),
    Property.REQUEST_RESPONSE_INFORMATION: (_FLAG, _CONNECT),
    Property.RESPONSE_INFORMATION: (_TEXT, _CONNACK),
    Property.SERVER_REFERENCE: (_TEXT, _CONNACK | {PacketType.DISCONNECT}),
    Property.REASON_STRING: (_TEXT, _WITH_REASON),
    Property.RECEIVE_MAXIMUM: (_U16_POSITIVE, _HANDSHAKE),
    Property.TOPIC_ALIAS_MAXIMUM: (_U16, _HANDSHAKE),
    Property.TOPIC_ALIAS: (_U16_POSITIVE, frozenset({PacketType.PUBLISH})),
    Property.MAXIMUM_QOS: (_FLAG, _CONNACK),
    Property.RETAIN_AVAILABLE: (_FLAG, _CONNACK),
    Property.USER_PROPERTY: (_PAIR, frozenset(PacketType) - {PacketType.PINGREQ, PacketType.PINGRESP}),
    Property.MAXIMUM_PACKET_SIZE: (_U32_POSITIVE, _HANDSHAKE),
    Property.WILDCARD_AVAILABLE: (_FLAG, _CONNACK),
    Property.SUBSCRIPTION_ID_AVAILABLE: (_FLAG, _CONNACK),
    Property.SHARED_AVAILABLE: (_FLAG, _CONNACK),
}


def encode_properties(properties: Properties) -> bytes:
    """All properties, preceded by their length."""
    octets = bytearray()
    for key, value in properties.items():
        write = _TABLE[key][0].write
        for item in value if key in REPEATABLE else (value,):
            octets.append(key)
            octets += write(item)
    return encode_varint(len(octets)) + bytes(octets)


def read_properties(reader: Reader, kind: PacketType) -> Properties:
    """Read the properties of a packet of this type."""
    length = reader.varint()
    if not length:
        return NO_PROPERTIES
    inner = Reader(reader.raw(length))
    found: dict[Property, Any] = {}
    while inner.left:
        code = inner.varint()
        key = _KNOWN.get(code)
        if key is None:
            raise PeerError(f"0x{code:02x} is not a property of MQTT 5")
        encoding, packet_types = _TABLE[key]
        if kind not in packet_types:
            raise PeerError(f"the property {_name(key)} is not allowed on {kind.name}")
        value = encoding.read(inner)
        if key in REPEATABLE:
            found.setdefault(key, []).append(value)
        elif key in found:
            raise PeerError(f"the property {_name(key)} appears twice on one packet")
        else:
            found[key] = value
    for key in REPEATABLE & found.keys():
        found[key] = tuple(found[key])
    return found


_KNOWN = {int(key): key for key in Property}


def _name(key: Property) -> str:
    return key.name.lower().replace("_", " ")
