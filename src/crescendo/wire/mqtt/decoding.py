"""What do these bytes mean, exactly?

The scalar decoder for both versions and both roles, and the oracle for the batch path. Strict: anything that the
specification forbids a peer to send is a PeerError that names it. Payloads are views, everything else is copied.
"""

from collections.abc import Callable

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.packet_types import V3, V5, PacketType, flags_of
from crescendo.wire.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties, Property, read_properties
from crescendo.wire.mqtt.reasons import FAILURE, Reason, reason_code_of
from crescendo.wire.mqtt.topics import filter_fault, name_fault
from crescendo.wire.mqtt.values import Reader, read_varint


def packet_length(data: memoryview, start: int, end: int, limit: int) -> int | None:
    """The length of the packet that starts here, including its fixed header; None if that has not arrived yet."""
    found = read_varint(data, start + 1, end)
    if found is None:
        return None
    remaining, body_start = found
    length = body_start - start + remaining
    if length > limit:
        raise PeerError(f"a packet of {length} bytes where {limit} were agreed")
    return length


def decode(octets: memoryview, version: int) -> Packet:
    """Decode one complete packet."""
    first = octets[0]
    reader = Reader(octets, 1)
    reader.varint()
    if first >> 4 == PacketType.PUBLISH:
        return _publish(reader, first, version)
    kind = PacketType(first >> 4)
    if kind is PacketType.WILL:
        raise PeerError("a packet of the forbidden type 0")
    if first & 0x0F != flags_of(kind):
        raise PeerError(f"{kind.name} with the reserved flags {first & 0x0F:#06b}")
    packet = _READERS[kind](reader, kind, version)
    reader.finish()
    return packet


def _publish(reader: Reader, first: int, version: int) -> Publish:
    qos = first >> 1 & 3
    dup = bool(first & 8)
    if qos == 3:
        raise PeerError("a message with QoS 3, which does not exist")
    if dup and not qos:
        raise PeerError("a message with QoS 0 that is marked as a duplicate")
    topic = reader.text()
    packet_id = _packet_id(reader) if qos else 0
    properties = _extra(reader, PacketType.PUBLISH, version)
    fault = name_fault(topic)
    if fault is not None and (topic or Property.TOPIC_ALIAS not in properties):
        raise PeerError(fault)
    return Publish(topic, reader.rest(), qos, bool(first & 1), dup, packet_id, properties)


def _extra(reader: Reader, kind: PacketType, version: int) -> Properties:
    return read_properties(reader, kind) if version == V5 else NO_PROPERTIES


def _packet_id(reader: Reader) -> int:
    packet_id = reader.u16()
    if not packet_id:
        raise PeerError("a packet identifier is 0")
    return packet_id


def _answer(reader: Reader, kind: PacketType, version: int) -> tuple[int, Properties]:
    if version != V5 or not reader.left:
        return Reason.SUCCESS, NO_PROPERTIES
    code = reader.octet()
    return code, read_properties(reader, kind) if reader.left else NO_PROPERTIES


def _ack(reader: Reader, kind: PacketType, version: int) -> Packet:
    packet_id = _packet_id(reader)
    code, properties = _answer(reader, kind, version)
    return Ack(kind, packet_id, code, properties)


def _connect(reader: Reader, kind: PacketType, version: int) -> Packet:
    protocol = reader.text()
    version = reader.octet()  # CONNECT states its own version
    if protocol != "MQTT" or version not in {V3, V5}:
        raise PeerError(f"{protocol} level {version} where MQTT level {V3} or {V5} is required")
    flags = reader.octet()
    if flags & 1:
        raise PeerError("CONNECT with its reserved flag set")
    if flags & 0x40 and not flags & 0x80 and version == V3:
        raise PeerError("a password without a user")
    keep_alive_s = reader.u16()
    properties = _extra(reader, kind, version)
    client_id = reader.text()
    will = _will(reader, flags, version)
    user = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    return Connect(client_id, version, bool(flags & 2), keep_alive_s, user, password, will, properties)


def _will(reader: Reader, flags: int, version: int) -> Will | None:
    qos, retain = flags >> 3 & 3, bool(flags & 0x20)
    if not flags & 4:
        if qos or retain:
            raise PeerError("CONNECT has flags of a will but no will")
        return None
    if qos == 3:
        raise PeerError("a will with QoS 3, which does not exist")
    properties = _extra(reader, PacketType.WILL, version)
    topic = reader.text()
    fault = name_fault(topic)
    if fault is not None:
        raise PeerError(fault)
    return Will(topic, reader.binary(), qos, retain, properties)


def _connack(reader: Reader, kind: PacketType, version: int) -> Packet:
    flags = reader.octet()
    if flags > 1:
        raise PeerError("CONNACK with reserved flags set")
    code = reader.octet()
    if version != V5 and code:
        code = reason_code_of(code)
    # A server that supports only MQTT 3.1.1 refuses an MQTT 5 client with the shorter 3.1.1 packet.
    if version == V5 and not reader.left and code:
        return Connack(code if code >= FAILURE else reason_code_of(code), bool(flags))
    return Connack(code, bool(flags), _extra(reader, kind, version))


def _subscribe(reader: Reader, kind: PacketType, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _extra(reader, kind, version)
    filters = []
    while reader.left:
        text = _filter(reader)
        options = reader.octet()
        qos, handling = options & 3, options >> 4 & 3
        if qos == 3 or handling == 3 or options & (0xC0 if version == V5 else 0xFC):
            raise PeerError(f"a subscription with the invalid options {options:#04x}")
        filters.append(Filter(text, qos, bool(options & 4), bool(options & 8), handling))
    if not filters:
        raise PeerError("SUBSCRIBE without a topic filter")
    return Subscribe(packet_id, tuple(filters), properties)


def _filter(reader: Reader) -> str:
    text = reader.text()
    fault = filter_fault(text)
    if fault is not None:
        raise PeerError(fault)
    return text


def _suback(reader: Reader, kind: PacketType, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _extra(reader, kind, version)
    codes = tuple(reader.rest())
    if not codes:
        raise PeerError("SUBACK without a code")
    return Suback(packet_id, codes, properties)


def _unsubscribe(reader: Reader, kind: PacketType, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _extra(reader, kind, version)
    filters = []
    while reader.left:
        filters.append(_filter(reader))
    if not filters:
        raise PeerError("UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(reader: Reader, kind: PacketType, version: int) -> Packet:
    packet_id = _packet_id(reader)
    properties = _extra(reader, kind, version)
    return Unsuback(packet_id, tuple(reader.rest()) if version == V5 else (), properties)


def _disconnect(reader: Reader, kind: PacketType, version: int) -> Packet:
    return Disconnect(*_answer(reader, kind, version))


def _auth(reader: Reader, kind: PacketType, version: int) -> Packet:
    if version != V5:
        raise PeerError("AUTH, which MQTT 3.1.1 does not have")
    return Auth(*_answer(reader, kind, version))


_READERS: dict[PacketType, Callable[[Reader, PacketType, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _ack,
    PacketType.PUBREC: _ack,
    PacketType.PUBREL: _ack,
    PacketType.PUBCOMP: _ack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda *_: Pingreq(),
    PacketType.PINGRESP: lambda *_: Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
