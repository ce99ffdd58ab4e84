"""Do packets mean what the specification says, in both versions?

The codec is checked against bytes composed by hand from the specification; round trips cover the rest.
"""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.mqtt.decoding import decode, packet_length
from crescendo.wire.mqtt.encoding import encode
from crescendo.wire.mqtt.packet_types import V3, V5, PacketType
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
from crescendo.wire.mqtt.properties import Property
from crescendo.wire.mqtt.reasons import reason_text
from crescendo.wire.mqtt.values import encode_varint, read_varint
from mqtt_streams import packet, text

P = Property

# -- bytes from the specification ------------------------------------------------------------------------------------

KNOWN: list[tuple[int, Packet, bytes]] = [
    (
        V3,
        Connect("id", V3, True, 10),
        b"\x10\x0e" b"\x00\x04MQTT" b"\x04" b"\x02" b"\x00\x0a" b"\x00\x02id",
    ),
    (
        V3,  # user, password, will with QoS 1 and retain, a kept session: flags 1110 1100
        Connect("a", V3, False, 60, "u", b"pw", Will("w", b"bye", 1, True)),
        b"\x10\x1c\x00\x04MQTT\x04\xec\x00\x3c" b"\x00\x01a" b"\x00\x01w" b"\x00\x03bye" b"\x00\x01u" b"\x00\x02pw",
    ),
    (
        V5,  # session expiry 300 s, receive maximum 20, largest packet 1 MiB
        Connect(
            "a", V5, True, 10,
            properties={P.SESSION_EXPIRY_S: 300, P.RECEIVE_MAXIMUM: 20, P.MAXIMUM_PACKET_SIZE: 2**20},
        ),
        b"\x10\x1b\x00\x04MQTT\x05\x02\x00\x0a" b"\x0d" b"\x11\x00\x00\x01\x2c" b"\x21\x00\x14" b"\x27\x00\x10\x00\x00"
        b"\x00\x01a",
    ),
    (
        V5,  # a password without a user, a will with a delay of 5 s
        Connect("", V5, True, 0, None, b"p", Will("w", b"", 0, False, {P.WILL_DELAY_S: 5})),
        b"\x10\x1b\x00\x04MQTT\x05\x46\x00\x00" b"\x00" b"\x00\x00" b"\x05\x18\x00\x00\x00\x05" b"\x00\x01w" b"\x00\x00"
        b"\x00\x01p",
    ),
    (V3, Connack(0, True), b"\x20\x02\x01\x00"),
    (V3, Connack(0x86), b"\x20\x02\x00\x04"),
    (V5, Connack(0x87, False, {P.REASON_STRING: "no"}), b"\x20\x08\x00\x87\x05\x1f\x00\x02no"),
    (V3, Publish("a/b", b"xyz"), b"\x30\x08\x00\x03a/bxyz"),
    (V3, Publish("a/b", b"xyz", 1, True, True, 10), b"\x3b\x0a\x00\x03a/b\x00\x0axyz"),
    (V5, Publish("a", b"x", 2, False, False, 258, {P.PAYLOAD_FORMAT: True}), b"\x34\x09\x00\x01a\x01\x02\x02\x01\x01x"),
    (V5, Publish("a", b""), b"\x30\x04\x00\x01a\x00"),
    (V3, Ack(PacketType.PUBACK, 258), b"\x40\x02\x01\x02"),
    (V5, Ack(PacketType.PUBACK, 258), b"\x40\x02\x01\x02"),
    (V5, Ack(PacketType.PUBACK, 258, 0x10), b"\x40\x03\x01\x02\x10"),
    (V5, Ack(PacketType.PUBREC, 1, 0x97, {P.REASON_STRING: "full"}), b"\x50\x0b\x00\x01\x97\x07\x1f\x00\x04full"),
    (V3, Ack(PacketType.PUBREL, 1), b"\x62\x02\x00\x01"),
    (V5, Ack(PacketType.PUBCOMP, 1, 0x92), b"\x70\x03\x00\x01\x92"),
    (V3, Subscribe(10, (Filter("a/+", 1), Filter("#", 2))), b"\x82\x0c\x00\x0a\x00\x03a/+\x01\x00\x01#\x02"),
    (
        V5,  # subscription identifier 128 takes two bytes; no local, retain as published, retain handling 2
        Subscribe(1, (Filter("$share/g/t", 1, True, True, 2),), {P.SUBSCRIPTION_ID: (128,)}),
        b"\x82\x13\x00\x01" b"\x03\x0b\x80\x01" b"\x00\x0a$share/g/t" b"\x2d",
    ),
    (V3, Suback(10, (0, 2, 0x80)), b"\x90\x05\x00\x0a\x00\x02\x80"),
    (V5, Suback(10, (1,)), b"\x90\x04\x00\x0a\x00\x01"),
    (V3, Unsubscribe(4, ("a", "b/#")), b"\xa2\x0a\x00\x04\x00\x01a\x00\x03b/#"),
    (V5, Unsubscribe(4, ("a",)), b"\xa2\x06\x00\x04\x00\x00\x01a"),
    (V3, Unsuback(4), b"\xb0\x02\x00\x04"),
    (V5, Unsuback(4, (0, 0x11)), b"\xb0\x05\x00\x04\x00\x00\x11"),
    (V3, Pingreq(), b"\xc0\x00"),
    (V5, Pingresp(), b"\xd0\x00"),
    (V3, Disconnect(), b"\xe0\x00"),
    (V5, Disconnect(), b"\xe0\x00"),
    (V5, Disconnect(0x04), b"\xe0\x01\x04"),
    (V5, Disconnect(0x8B, {P.SERVER_REFERENCE: "b"}), b"\xe0\x06\x8b\x04\x1c\x00\x01b"),
    (V5, Auth(0x18, {P.AUTHENTICATION_METHOD: "m"}), b"\xf0\x06\x18\x04\x15\x00\x01m"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "value", "octets"), KNOWN, ids=[f"{v}-{type(p).__name__}" for v, p, _ in KNOWN])
def test_bytes_are_those_of_the_specification(version: int, value: Packet, octets: bytes) -> None:
    assert encode(value, version) == octets
    assert decode(memoryview(octets), version) == value


@pytest.mark.parametrize(
    ("value", "octets"),
    [  # table 2.4 (3.1.1) and 1-1 (5)
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2_097_151, b"\xff\xff\x7f"),
        (2_097_152, b"\x80\x80\x80\x01"),
        (268_435_455, b"\xff\xff\xff\x7f"),
    ],
)
def test_lengths_are_written_as_in_the_specifications_table(value: int, octets: bytes) -> None:
    assert encode_varint(value) == octets
    assert read_varint(memoryview(octets), 0, len(octets)) == (value, len(octets))
    for cut in range(len(octets)):
        assert read_varint(memoryview(octets), 0, cut) is None


@pytest.mark.parametrize(
    ("return_code", "meaning"),
    [
        (1, "unsupported protocol version"),
        (2, "client identifier not valid"),
        (3, "server unavailable"),
        (4, "bad user name or password"),
        (5, "not authorised"),
    ],
)
def test_every_refusal_of_3_1_1_has_a_text(return_code: int, meaning: str) -> None:
    answer = decode(memoryview(bytes((0x20, 2, 0, return_code))), V3)
    assert isinstance(answer, Connack)
    assert meaning in reason_text(answer.code)
    # A server that supports only 3.1.1 refuses an MQTT 5 client with the same short packet.
    assert decode(memoryview(bytes((0x20, 2, 0, return_code))), V5) == answer


def test_every_refusal_of_5_has_a_text() -> None:
    refusals = [*range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F]  # table 3-1
    assert all("unknown" not in reason_text(code) for code in refusals)
    assert reason_text(0x97, "disk full") == "quota exceeded (0x97): disk full"


# -- round trips -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(["t", "a/b", "größe/µ", "x" * 200])
filters = st.sampled_from(["t", "a/+/b", "#", "a/#", "+", "$share/g/a/+", "/", "$SYS/x"])
ids = st.integers(1, 65_535)
u32 = st.integers(0, 2**32 - 1)
codes = st.integers(0, 255)
blobs = st.binary(max_size=20)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(tuple)


def some(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Properties: any of these, and user properties."""
    optional = {Property[name]: values[name] for name in values}
    return st.fixed_dictionaries({}, optional={**optional, Property.USER_PROPERTY: pairs})


message_properties = {
    "PAYLOAD_FORMAT": st.booleans(), "MESSAGE_EXPIRY_S": u32, "CONTENT_TYPE": texts, "RESPONSE_TOPIC": texts,
    "CORRELATION_DATA": blobs,
}  # fmt: skip
handshake_properties = {
    "SESSION_EXPIRY_S": u32, "RECEIVE_MAXIMUM": ids, "MAXIMUM_PACKET_SIZE": st.integers(1, 2**32 - 1),
    "TOPIC_ALIAS_MAXIMUM": st.integers(0, 65_535), "AUTHENTICATION_METHOD": texts, "AUTHENTICATION_DATA": blobs,
}  # fmt: skip
reason = {"REASON_STRING": texts}
wills = st.builds(
    Will, names, blobs, st.integers(0, 2), st.booleans(), some(WILL_DELAY_S=u32, **message_properties)
)  # fmt: skip
messages = st.integers(0, 2).flatmap(
    lambda qos: st.builds(
        Publish, names, st.binary(max_size=300), st.just(qos), st.booleans(), st.booleans() if qos else st.just(False),
        ids if qos else st.just(0),
        some(
            TOPIC_ALIAS=ids, SUBSCRIPTION_ID=st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple),
            **message_properties,
        ),
    )
)  # fmt: skip
packets = st.one_of(
    st.builds(
        Connect, texts, st.just(V5), st.booleans(), st.integers(0, 65_535), st.none() | texts, st.none() | blobs,
        st.none() | wills,
        some(
            REQUEST_PROBLEM_INFORMATION=st.booleans(), REQUEST_RESPONSE_INFORMATION=st.booleans(),
            **handshake_properties,
        ),
    ),
    st.builds(
        Connack, codes, st.booleans(),
        some(
            ASSIGNED_CLIENT_ID=texts, SERVER_KEEP_ALIVE_S=st.integers(0, 65_535), RESPONSE_INFORMATION=texts,
            SERVER_REFERENCE=texts, MAXIMUM_QOS=st.booleans(), RETAIN_AVAILABLE=st.booleans(),
            WILDCARD_AVAILABLE=st.booleans(), SUBSCRIPTION_ID_AVAILABLE=st.booleans(), SHARED_AVAILABLE=st.booleans(),
            **handshake_properties, **reason,
        ),
    ),
    messages,
    st.builds(
        Ack,
        st.sampled_from([PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]),
        ids, codes, some(**reason),
    ),
    st.builds(
        Subscribe, ids,
        st.lists(
            st.builds(Filter, filters, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2)),
            min_size=1, max_size=4,
        ).map(tuple),
        some(),
    ),
    st.builds(Suback, ids, st.lists(codes, min_size=1, max_size=4).map(tuple), some(**reason)),
    st.builds(Unsubscribe, ids, st.lists(filters, min_size=1, max_size=4).map(tuple), some()),
    st.builds(Unsuback, ids, st.lists(codes, max_size=4).map(tuple), some(**reason)),
    st.builds(Disconnect, codes, some(SESSION_EXPIRY_S=u32, SERVER_REFERENCE=texts, **reason)),
    st.builds(Auth, codes, some(AUTHENTICATION_METHOD=texts, AUTHENTICATION_DATA=blobs, **reason)),
)  # fmt: skip


@settings(max_examples=100)
@given(value=packets)
def test_decoding_reverses_encoding(value: Packet) -> None:
    octets = memoryview(encode(value, V5))
    assert decode(octets, V5) == value
    assert packet_length(octets, 0, len(octets), len(octets)) == len(octets)


@settings(max_examples=60)
@given(value=packets, cut=st.integers(1, 400))
def test_a_truncated_packet_never_means_the_same(value: Packet, cut: int) -> None:
    assume(not (isinstance(value, Connack) and value.code))  # a refusal may be as short as in 3.1.1
    whole = encode(value, V5)
    assume(len(whole) > 2)
    header = 2 if whole[1] < 0x80 else 3
    body = whole[header:]
    shorter = packet(whole[0], body[: max(len(body) - cut, 0)])
    try:
        again = decode(memoryview(shorter), V5)
    except PeerError:
        return
    assert encode(again, V5) != whole  # a shorter packet may be valid, but never means the same


# -- forbidden packets -----------------------------------------------------------------------------------------------

WRONG: list[tuple[str, int, bytes]] = [
    ("type 0", V3, b"\x00\x00"),
    ("reserved flags", V3, b"\x41\x02\x00\x01"),
    ("PUBREL without its flags", V3, b"\x60\x02\x00\x01"),
    ("QoS 3", V3, b"\x36\x05\x00\x01a\x00\x01"),
    ("QoS 0 marked as duplicate", V3, b"\x38\x03\x00\x01a"),
    ("identifier 0", V3, b"\x32\x05\x00\x01a\x00\x00"),
    ("no topic", V3, b"\x30\x02\x00\x00"),
    ("no topic and no alias", V5, b"\x30\x03\x00\x00\x00"),
    ("wildcard in a topic", V3, packet(0x30, text("a/+"))),
    ("topic longer than the packet", V3, b"\x30\x04\x00\x03ab"),
    ("topic that is not UTF-8", V3, b"\x30\x04\x00\x02\xc3\x28"),
    ("surrogate in a topic", V3, b"\x30\x05\x00\x03\xed\xa0\x80"),
    ("over-long UTF-8", V3, b"\x30\x04\x00\x02\xc0\x80"),
    ("U+0000 in a topic", V3, b"\x30\x05\x00\x03a\x00b"),
    ("properties longer than the packet", V5, b"\x30\x04\x00\x01a\x05"),
    ("unknown property", V5, b"\x30\x06\x00\x01a\x02\x7f\x00"),
    ("property of another packet", V5, b"\x30\x09\x00\x01a\x05\x11\x00\x00\x00\x01"),
    ("property twice", V5, b"\x30\x08\x00\x01a\x04\x01\x00\x01\x00"),
    ("flag that is 2", V5, b"\x30\x06\x00\x01a\x02\x01\x02"),
    ("topic alias 0", V5, b"\x30\x07\x00\x01a\x03\x23\x00\x00"),
    ("subscription identifier 0", V5, b"\x30\x06\x00\x01a\x02\x0b\x00"),
    ("receive maximum 0", V5, b"\x20\x06\x00\x00\x03\x21\x00\x00"),
    ("trailing bytes", V3, b"\x40\x03\x00\x01\x00"),
    ("CONNACK with reserved flags", V3, b"\x20\x02\x02\x00"),
    ("CONNECT of another protocol", V3, packet(0x10, text("MQIsdp") + b"\x03\x02\x00\x00\x00\x01a")),
    ("CONNECT of level 6", V3, packet(0x10, text("MQTT") + b"\x06\x02\x00\x00\x00\x01a")),
    ("CONNECT with its reserved flag", V3, packet(0x10, text("MQTT") + b"\x04\x03\x00\x00\x00\x01a")),
    ("password without user", V3, packet(0x10, text("MQTT") + b"\x04\x42\x00\x00\x00\x01a\x00\x01p")),
    ("QoS of a missing will", V3, packet(0x10, text("MQTT") + b"\x04\x0a\x00\x00\x00\x01a")),
    ("SUBSCRIBE without filters", V3, b"\x82\x02\x00\x01"),
    ("reserved options", V3, packet(0x82, b"\x00\x01" + text("a") + b"\x04")),
    ("retain handling 3", V5, packet(0x82, b"\x00\x01\x00" + text("a") + b"\x30")),
    ("# before the end", V3, packet(0x82, b"\x00\x01" + text("#/a") + b"\x00")),
    ("# beside other characters", V3, packet(0x82, b"\x00\x01" + text("a#") + b"\x00")),
    ("+ beside other characters", V3, packet(0x82, b"\x00\x01" + text("a+/b") + b"\x00")),
    ("share without a filter", V5, packet(0x82, b"\x00\x01\x00" + text("$share/g") + b"\x00")),
    ("wildcard in a share name", V5, packet(0x82, b"\x00\x01\x00" + text("$share/+/t") + b"\x00")),
    ("SUBACK without codes", V3, b"\x90\x02\x00\x01"),
    ("UNSUBSCRIBE without filters", V3, b"\xa2\x02\x00\x01"),
    ("ping with a body", V3, b"\xc0\x01\x00"),
    ("AUTH in 3.1.1", V3, b"\xf0\x00"),
]


@pytest.mark.parametrize(("version", "octets"), [entry[1:] for entry in WRONG], ids=[entry[0] for entry in WRONG])
def test_a_forbidden_packet_is_the_peers_fault(version: int, octets: bytes) -> None:
    assert packet_length(memoryview(octets), 0, len(octets), 1000) == len(octets)
    with pytest.raises(PeerError):
        decode(memoryview(octets), version)


@pytest.mark.parametrize("octets", [b"\x30\xff\xff\xff\xff\x01", b"\x30\x80\x00", b"\x30\xff\xff\xff\x7f"])
def test_a_length_beyond_the_limit_or_the_specification_is_the_peers_fault(octets: bytes) -> None:
    with pytest.raises(PeerError):
        packet_length(memoryview(octets), 0, len(octets), 2**20)


@pytest.mark.parametrize(
    "value",
    [
        Publish("a/#", b""),
        Publish("", b""),
        Publish("a\0b", b""),
        Publish("\ud800", b""),
        Publish("x" * 65_536, b""),
        Subscribe(1, ()),
        Subscribe(1, (Filter("a/#/b"),)),
        Unsubscribe(1, ("",)),
        Connect("a", V3, password=b"p"),
    ],
)
def test_a_value_that_mqtt_cannot_encode_is_a_config_error(value: Packet) -> None:
    with pytest.raises(ConfigError):
        encode(value, V3)
