"""Do a client and a server without sockets keep the guarantees of the protocol?"""

import pytest

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.batch import PublishBatch
from crescendo.wire.mqtt.connection import Connection
from crescendo.wire.mqtt.events import (
    Acknowledged,
    Closed,
    Connected,
    ConnectRequested,
    Deliveries,
    Event,
    Refused,
    Subscribed,
    SubscribeRequested,
    Unsubscribed,
    UnsubscribeRequested,
)
from crescendo.wire.mqtt.packet_types import V3, V5
from crescendo.wire.mqtt.packets import Connect, Filter
from crescendo.wire.mqtt.properties import Property
from mqtt_streams import (
    CONNACK_3,
    CONNACK_5,
    CONNACKS,
    CONNECTS,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    ack,
    client_of,
    flattened,
    listen,
    packet,
    publish,
    text,
)
from stream_feed import events_of, take_outgoing

both = pytest.mark.parametrize("version", [V3, V5])
NOTHING = {V3: b"", V5: b"\x00"}  # the properties of a packet that has none


def server_of(version: int) -> Connection:
    """A server that has accepted a client."""
    connection = Connection()
    list(events_of(connection, CONNECTS[version]))
    connection.accept()
    connection.outgoing.clear()
    return connection


def exchanged(client: Connection, server: Connection) -> tuple[list[Event], list[Event]]:
    """Exchange bytes until both sides are idle, acknowledging messages; returns the events of client and server."""
    received: tuple[list[Event], list[Event]] = [], []
    while client.outgoing or server.outgoing:
        for source, target, events in ((server, client, received[0]), (client, server, received[1])):
            for event in events_of(target, take_outgoing(source)):
                if isinstance(event, Deliveries):
                    target.acknowledge(event.ids, event.qos)
                    event = event._replace(bodies=event.bodies.copy())  # noqa: PLW2901 - the view is valid only until the next read
                events.append(event)
    return received


# -- connecting ------------------------------------------------------------------------------------------------------


@both
def test_a_client_connects_and_is_accepted(version: int) -> None:
    client = Connection(Connect("c", version, keep_alive_s=10))
    assert take_outgoing(client) == CONNECTS[version]
    assert list(events_of(client, CONNACKS[version])) == [Connected(False, {})]
    assert client.limits.keep_alive_s == 10


def test_the_limits_of_the_server_are_kept() -> None:
    properties = b"\x21\x00\x14" b"\x27\x00\x00\x04\x00" b"\x24\x00" b"\x2a\x00" b"\x13\x00\x05"  # fmt: skip
    client = Connection(Connect("c", V5, keep_alive_s=10))
    list(events_of(client, packet(0x20, b"\x01\x00" + bytes((len(properties),)) + properties)))
    limits = client.limits
    assert (limits.receive_maximum, limits.max_packet_bytes, limits.maximum_qos) == (20, 1024, 0)
    assert (limits.shared_available, limits.wildcard_available, limits.keep_alive_s) == (False, True, 5)
    assert client.window.room == 20


@pytest.mark.parametrize(
    ("version", "answer", "expected"),
    [
        (V3, b"\x20\x02\x00\x05", Refused(0x87, "not authorised (0x87)")),
        (V5, b"\x20\x08\x00\x87\x05\x1f\x00\x02no", Refused(0x87, "not authorised (0x87): no")),
        (V5, b"\x20\x02\x00\x01", Refused(0x84, "unsupported protocol version (0x84)")),
    ],
)
def test_a_refusal_quotes_the_server(version: int, answer: bytes, expected: Refused) -> None:
    client = Connection(Connect("c", version))
    assert list(events_of(client, answer + PINGRESP)) == [expected]
    assert client.closed


@pytest.mark.parametrize("stream", [PINGRESP, publish("t", b""), ack(PUBACK, 1), CONNECTS[V3], b"\xf0\x00"])
def test_a_packet_before_connack_is_the_peers_fault(stream: bytes) -> None:
    with pytest.raises(PeerError):
        list(events_of(Connection(Connect("c")), stream))


@pytest.mark.parametrize("stream", [PINGREQ, publish("t", b""), CONNACK_3, CONNECTS[V3] + CONNECTS[V3]])
def test_a_packet_before_connect_or_a_second_connect_is_the_peers_fault(stream: bytes) -> None:
    with pytest.raises(PeerError):
        list(events_of(Connection(), stream))


@pytest.mark.parametrize("stream", [CONNACK_5, PINGREQ, packet(0x82, b"\x00\x01\x00" + text("a") + b"\x00")])
def test_a_client_packet_from_a_server_is_the_peers_fault(stream: bytes) -> None:
    with pytest.raises(PeerError):
        list(events_of(client_of(V5), stream))


def test_a_server_of_3_1_1_has_no_disconnect() -> None:
    with pytest.raises(PeerError, match="DISCONNECT"):
        list(events_of(client_of(V3), b"\xe0\x00"))


def test_a_disconnect_of_the_server_carries_its_reason() -> None:
    events = list(events_of(client_of(V5), b"\xe0\x01\x8b" + publish("t", b"", extra=b"\x00")))
    assert events == [Closed("server shutting down (0x8b)")]


@both
def test_a_server_learns_version_and_limits_from_connect(version: int) -> None:
    properties = {Property.RECEIVE_MAXIMUM: 3} if version == V5 else {}
    client = Connection(Connect("c", version, user="u", password=b"p", properties=properties))
    server = Connection()
    (event,) = events_of(server, take_outgoing(client))
    assert event == ConnectRequested(Connect("c", version, user="u", password=b"p", properties=properties))
    server.accept()
    assert list(events_of(client, take_outgoing(server))) == [Connected(False, {})]
    assert server.window.room == (3 if version == V5 else 65_535)


@both
def test_a_server_can_refuse(version: int) -> None:
    client, server = Connection(Connect("c", version)), Connection()
    list(events_of(server, take_outgoing(client)))
    server.refuse(0x86, "who?")
    (event,) = events_of(client, take_outgoing(server))
    meaning = "bad user name or password (0x86)"
    assert event == Refused(0x86, f"{meaning}: who?" if version == V5 else meaning)


# -- subscribing, pinging, disconnecting -----------------------------------------------------------------------------


@both
def test_a_subscription_is_asked_for_and_granted(version: int) -> None:
    client, server = client_of(version), server_of(version)
    number = client.subscribe([Filter("a/+", 1), Filter("$share/g/b", 2)])
    (asked,) = events_of(server, take_outgoing(client))
    assert asked == SubscribeRequested(1, (Filter("a/+", 1), Filter("$share/g/b", 2)))
    server.grant(1, (1, 0x80))
    assert list(events_of(client, take_outgoing(server))) == [Subscribed(number, (1, 0x80), "")]
    ended = client.unsubscribe(["a/+"])
    (asked,) = events_of(server, take_outgoing(client))
    assert asked == UnsubscribeRequested(2, ("a/+",))
    server.grant_unsubscribe(2, (0,))
    assert list(events_of(client, take_outgoing(server))) == [Unsubscribed(ended, (0,) if version == V5 else (), "")]
    assert client.window.in_flight == 0


def test_a_subscription_identifier_goes_over_the_wire() -> None:
    client = client_of(V5)
    client.subscribe([Filter("a")], subscription_id=300)
    assert take_outgoing(client) == b"\x82\x0a\x00\x01\x03\x0b\xac\x02\x00\x01a\x00"


@both
def test_a_ping_is_answered(version: int) -> None:
    client, server = client_of(version), server_of(version)
    client.ping()
    assert exchanged(client, server) == ([], [])
    list(events_of(server, PINGREQ))
    assert take_outgoing(server) == PINGRESP


@both
def test_a_disconnect_of_the_client_closes_the_server_side(version: int) -> None:
    client, server = client_of(version), server_of(version)
    client.disconnect()
    assert exchanged(client, server)[1] == [Closed("")]
    assert server.closed


def test_the_reason_of_a_disconnect_is_reported() -> None:
    client, server = client_of(V5), server_of(V5)
    client.disconnect(0x93)
    assert exchanged(client, server)[1] == [Closed("receive maximum exceeded (0x93)")]


# -- messages --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_arrive_once_and_are_acknowledged_once(version: int, batching: bool, qos: int) -> None:
    client = client_of(version, batching=batching)
    server = Connection(batching=batching)
    list(events_of(server, CONNECTS[version]))
    server.accept()
    server.outgoing.clear()
    batch = PublishBatch(topic="t", body_length=64, qos=qos, version=version, capacity=200)
    batch.bodies[:, 0] = range(200)
    assert client.publish(batch, 200) == 0
    for number in range(3):
        client.publish_one("u", bytes((number,)), qos=qos)
    back, forth = exchanged(client, server)
    bodies = [body.tobytes() for event in forth if isinstance(event, Deliveries) for body in event.bodies]
    assert [body[0] for body in bodies] == [*range(200), 0, 1, 2]
    settled = [entry for event in back if isinstance(event, Acknowledged) for entry in flattened(event)]
    assert settled == ([("acknowledged", number, 0) for number in range(203)] if qos else [])
    assert client.window.in_flight == 0


@both
def test_qos_2_takes_the_four_packets_of_the_specification(version: int) -> None:
    client = client_of(version)
    client.publish_one("t", b"x", qos=2)
    assert take_outgoing(client) == publish("t", b"x", qos=2, number=1, extra=NOTHING[version])
    assert list(events_of(client, ack(PUBREC, 1))) == []
    assert take_outgoing(client) == ack(PUBREL, 1)
    assert list(events_of(client, ack(PUBCOMP, 1))) == [Acknowledged([(0, 0)], 0, False)]


@both
@pytest.mark.parametrize("batching", [True, False])
def test_a_message_repeated_before_its_release_is_not_delivered_again(version: int, batching: bool) -> None:
    client = client_of(version, batching=batching)
    extra = NOTHING[version]
    first = b"".join(publish("t", b"x" * 40, qos=2, number=n, extra=extra) for n in (1, 2, 3))
    again = b"".join(publish("t", b"x" * 40, qos=2, number=n, extra=extra) for n in (2, 3, 4))
    numbers = [entry[5] for entry in listen(client, first + again)]
    assert numbers == [1, 2, 3, 4]
    assert take_outgoing(client) == b"".join(ack(PUBREC, n) for n in (1, 2, 3, 2, 3, 4))
    assert listen(client, b"".join(ack(PUBREL, n) for n in (1, 2, 3, 4))) == []
    assert take_outgoing(client) == b"".join(ack(PUBCOMP, n) for n in (1, 2, 3, 4))
    assert len(listen(client, first)) == 3  # released identifiers name new messages


def test_a_release_of_an_unknown_identifier_is_answered_not_found() -> None:
    client = client_of(V5)
    assert listen(client, ack(PUBREL, 7)) == []
    assert take_outgoing(client) == ack(PUBCOMP, 7, b"\x92")


def test_a_refused_message_is_reported_with_its_code() -> None:
    client = client_of(V5)
    for qos in (1, 1, 2, 2):
        client.publish_one("t", b"x", qos=qos)
    stream = ack(PUBACK, 1, b"\x97") + ack(PUBACK, 2, b"\x97") + ack(PUBREC, 3, b"\x87") + ack(PUBREC, 4, b"\x87")
    assert listen(client, stream) == [("acknowledged", n, code) for n, code in enumerate((0x97, 0x97, 0x87, 0x87))]
    assert client.window.in_flight == 0


@pytest.mark.parametrize("stream", [ack(PUBACK, 9), ack(PUBCOMP, 1), ack(PUBREC, 1), ack(PUBACK, 1) * 2])
def test_an_unexpected_acknowledgement_is_the_peers_fault(stream: bytes) -> None:
    with pytest.raises(PeerError):
        listen(client_of(V3, unacknowledged=3), stream)


def test_more_messages_than_the_receive_maximum_are_the_peers_fault() -> None:
    client = Connection(Connect("c", V5, properties={Property.RECEIVE_MAXIMUM: 3}))
    list(events_of(client, CONNACK_5))
    three = b"".join(publish("t", b"x" * 40, qos=1, number=n, extra=b"\x00") for n in (1, 2, 3))
    assert len(listen(client, three)) == 3  # acknowledged, so three more may come
    assert len(listen(client, three)) == 3
    with pytest.raises(PeerError, match="where 3 were agreed"):
        list(events_of(client, three + three))


def test_a_topic_alias_that_was_not_allowed_is_the_peers_fault() -> None:
    with pytest.raises(PeerError, match="alias"):
        listen(client_of(V5), publish("", b"x", extra=b"\x03\x23\x00\x01"))


def test_a_packet_above_our_limit_is_refused_once_its_length_is_known() -> None:
    client = Connection(Connect("c", V5, properties={Property.MAXIMUM_PACKET_SIZE: 1000}))
    list(events_of(client, CONNACK_5))
    with pytest.raises(PeerError, match="where 1000 were agreed"):
        list(events_of(client, publish("t", bytes(2000))[:5]))


def test_a_message_larger_than_the_buffer_arrives_whole() -> None:
    client = client_of(V3)
    body = bytes(range(256)) * 12_000
    stream = publish("t", b"before") + publish("t", body) + publish("t", b"after")
    assert [entry[-1] for entry in listen(client, stream, range(0, len(stream), 100_000))] == [
        b"before",
        body,
        b"after",
    ]


def test_an_announced_length_allocates_no_memory() -> None:
    client = client_of(V3)
    before = len(client.receive_buffer())
    list(events_of(client, b"\x30\xff\xff\xff\x1f" + bytes(100)))
    assert len(client.receive_buffer()) <= before
