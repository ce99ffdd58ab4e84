"""How does a packet become bytes?

The exact scalar encoder for both versions. It writes what it is given, even what a peer would refuse. A value that MQTT
cannot encode is a ConfigError, because it came from the user.
"""

from crescendo.model.errors import ConfigError
from crescendo.wire.mqtt.packet_types import V5, PacketType, flags_of
from crescendo.wire.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from crescendo.wire.mqtt.properties import Properties, encode_properties
from crescendo.wire.mqtt.reasons import return_code_of
from crescendo.wire.mqtt.topics import filter_fault, name_fault
from crescendo.wire.mqtt.values import encode_binary, encode_text, encode_u16, encode_varint


def encode(packet: Packet, version: int) -> bytes:
    """The bytes of one packet in this version of the protocol."""
    match packet:
        case Publish():
            return _publish(packet, version)
        case Ack(kind=kind, packet_id=packet_id, code=code, properties=properties):
            return _framed(kind, encode_u16(packet_id) + _answer(code, properties, version))
        case Connect():
            return _framed(PacketType.CONNECT, _connect(packet))
        case Connack(code=code, session_present=session_present, properties=properties):
            if version != V5:
                return _framed(PacketType.CONNACK, bytes((session_present, return_code_of(code))))
            return _framed(PacketType.CONNACK, bytes((session_present, code)) + encode_properties(properties))
        case Subscribe():
            return _framed(PacketType.SUBSCRIBE, _subscribe(packet, version))
        case Suback(packet_id=packet_id, codes=codes, properties=properties):
            return _framed(PacketType.SUBACK, encode_u16(packet_id) + _extra(properties, version) + bytes(codes))
        case Unsubscribe(packet_id=packet_id, filters=filters, properties=properties):
            _require(filters)
            texts = b"".join(encode_text(text) for text in filters)
            return _framed(PacketType.UNSUBSCRIBE, encode_u16(packet_id) + _extra(properties, version) + texts)
        case Unsuback(packet_id=packet_id, codes=codes, properties=properties):
            answers = _extra(properties, version) + bytes(codes) if version == V5 else b""
            return _framed(PacketType.UNSUBACK, encode_u16(packet_id) + answers)
        case Pingreq():
            return _framed(PacketType.PINGREQ, b"")
        case Pingresp():
            return _framed(PacketType.PINGRESP, b"")
        case Disconnect(code=code, properties=properties):
            return _framed(PacketType.DISCONNECT, _answer(code, properties, version))
        case Auth(code=code, properties=properties):
            return _framed(PacketType.AUTH, _answer(code, properties, version))


def _framed(kind: PacketType, body: bytes) -> bytes:
    return bytes((kind << 4 | flags_of(kind),)) + encode_varint(len(body)) + body


def _extra(properties: Properties, version: int) -> bytes:
    return encode_properties(properties) if version == V5 else b""


def _answer(code: int, properties: Properties, version: int) -> bytes:
    """A reason code and properties: MQTT 5 omits them if they carry nothing, MQTT 3.1.1 always."""
    if version != V5 or not (code or properties):
        return b""
    return bytes((code,)) + (encode_properties(properties) if properties else b"")


def _publish(publish: Publish, version: int) -> bytes:
    fault = name_fault(publish.topic)
    if fault is not None:
        raise ConfigError(fault)
    head = encode_text(publish.topic)
    if publish.qos:
        head += encode_u16(publish.packet_id)
    head += _extra(publish.properties, version)
    first = PacketType.PUBLISH << 4 | publish.dup << 3 | publish.qos << 1 | publish.retain
    return bytes((first,)) + encode_varint(len(head) + len(publish.payload)) + head + publish.payload


def _connect(connect: Connect) -> bytes:
    will = connect.will
    flags = connect.clean << 1
    payload = encode_text(connect.client_id)
    if will is not None:
        flags |= 1 << 2 | will.qos << 3 | will.retain << 5
        payload += _extra(will.properties, connect.version) + encode_text(will.topic) + encode_binary(will.payload)
    if connect.user is not None:
        flags |= 1 << 7
        payload += encode_text(connect.user)
    if connect.password is not None:
        if connect.user is None and connect.version != V5:
            raise ConfigError("MQTT 3.1.1 does not allow a password without a user")
        flags |= 1 << 6
        payload += encode_binary(connect.password)
    head = encode_text("MQTT") + bytes((connect.version, flags)) + encode_u16(connect.keep_alive_s)
    return head + _extra(connect.properties, connect.version) + payload


def _subscribe(subscribe: Subscribe, version: int) -> bytes:
    _require(tuple(entry.text for entry in subscribe.filters))
    octets = encode_u16(subscribe.packet_id) + _extra(subscribe.properties, version)
    for entry in subscribe.filters:
        options = entry.qos
        if version == V5:
            options |= entry.no_local << 2 | entry.retain_as_published << 3 | entry.retain_handling << 4
        octets += encode_text(entry.text) + bytes((options,))
    return octets


def _require(filters: tuple[str, ...]) -> None:
    if not filters:
        raise ConfigError("a subscription needs at least one topic filter")
    for text in filters:
        fault = filter_fault(text)
        if fault is not None:
            raise ConfigError(fault)
