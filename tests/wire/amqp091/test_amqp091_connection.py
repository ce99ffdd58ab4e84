"""Does a connection follow the specification from its first byte to its last?

The server's bytes are written by hand, and ours are compared with bytes written by hand.
"""

import struct

import pytest

from amqp091_streams import (
    HEADER,
    HEARTBEAT,
    PUBLISH,
    Script,
    Shape,
    channel_open_ok,
    close,
    frame,
    long,
    method,
    new_client,
    open_ok,
    prologue,
    receive,
    short,
    start,
    tune,
)
from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.connection_methods import ConnectionStartOk
from crescendo.wire.amqp091.content import MAX_MESSAGE_BYTES
from crescendo.wire.amqp091.events import (
    Blocked,
    ChannelClosed,
    ChannelOpened,
    Closed,
    Confirmed,
    Deliveries,
    MethodReceived,
    Opened,
    Refused,
    Returned,
    Unblocked,
)
from crescendo.wire.amqp091.frames import MIN_FRAME_MAX
from crescendo.wire.amqp091.handshake import Limits, SignIn, agreed, external, plain
from crescendo.wire.amqp091.method_table import decode_method
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGetOk,
    BasicQos,
    BasicReturn,
    ChannelFlow,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from crescendo.wire.amqp091.properties import Properties
from stream_feed import events_of, take_outgoing

# -- signing in and tuning -------------------------------------------------------------------------------------------


def test_the_first_bytes_are_the_protocol_header() -> None:
    assert take_outgoing(Connection()) == HEADER


def start_ok_of(connection: Connection, mechanisms: str = "PLAIN EXTERNAL") -> ConnectionStartOk:
    take_outgoing(connection)
    assert list(events_of(connection, start(mechanisms))) == []
    sent = decode_method(memoryview(take_outgoing(connection)[7:-1]))
    assert isinstance(sent, ConnectionStartOk)
    return sent


@pytest.mark.parametrize(
    ("sign_in", "offered", "mechanism", "response"),
    [
        (plain("me", "s3cret: word"), "AMQPLAIN PLAIN", "PLAIN", b"\0me\0s3cret: word"),
        (external(), "PLAIN EXTERNAL", "EXTERNAL", b""),
        (None, "PLAIN", "PLAIN", b"\0guest\0guest"),
        (None, "PLAIN ANONYMOUS", "ANONYMOUS", b""),
    ],
)
def test_the_sign_in_sends_mechanism_and_response(
    sign_in: SignIn | None, offered: str, mechanism: str, response: bytes
) -> None:
    sent = start_ok_of(Connection(sign_in=sign_in), offered)
    assert (sent.mechanism, sent.response, sent.locale) == (mechanism, response, "en_US")
    assert sent.client_properties["capabilities"]["authentication_failure_close"] is True


def test_a_secret_is_never_shown() -> None:
    assert "s3cret" not in repr(plain("me", "s3cret"))


def test_tuning_takes_the_smaller_of_both_and_opens_the_virtual_host() -> None:
    connection = Connection(virtual_host="perf", limits=Limits(0, 65_536, 10))
    take_outgoing(connection)
    list(events_of(connection, start()))
    take_outgoing(connection)
    list(events_of(connection, tune(channel_max=100, frame_max=131_072, heartbeat_s=60)))
    tune_ok = method(0, 10, 31, struct.pack(">HIH", 100, 65_536, 10))
    assert take_outgoing(connection) == tune_ok + method(0, 10, 40, short("perf") + b"\x00\x00")
    assert connection.limits == Limits(100, 65_536, 10)
    assert [type(event) for event in events_of(connection, open_ok())] == [Opened]


def test_a_limit_of_zero_accepts_the_peers_limit() -> None:
    assert agreed(Limits(0, 131_072, 0), Limits(7, 0, 30)) == Limits(7, 131_072, 30)
    with pytest.raises(PeerError, match="4096"):
        agreed(Limits(), Limits(frame_max=4095))


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"AMQP\x03\x01\x00\x00", "speaks AMQP 1.0.0"),
        (b"AMQP\x01\x01\x00\x0a", "speaks AMQP 1.0.10|speaks AMQP 1.0"),
        (b"AMQP\x00\x00\x08\x00", "speaks AMQP 0-8-0"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak AMQP: it began with b'HTTP/1.1'"),
        (start(version=b"\x00\x08"), "speaks AMQP 0-8"),
        (start("GSSAPI CRAM-MD5"), "offers GSSAPI, CRAM-MD5 for sign-in but not PLAIN"),
        (start() + method(0, 10, 20, long(b"more?")), "several steps"),
    ],
)
def test_another_protocol_or_sign_in_is_refused_with_a_reason(octets: bytes, reason: str) -> None:
    connection = Connection(sign_in=plain("me", "x"))
    (event,) = events_of(connection, octets)
    assert isinstance(event, Refused)
    assert any(part in event.reason for part in reason.split("|"))
    assert connection.closed


def test_a_wrong_password_reports_the_servers_reason() -> None:
    connection = Connection(sign_in=plain("me", "wrong"))
    (event,) = events_of(connection, start() + close(403, "ACCESS_REFUSED - Login was refused"))
    assert event == Closed(403, "ACCESS_REFUSED - Login was refused")
    assert take_outgoing(connection).endswith(method(0, 10, 51))


def test_an_answer_out_of_order_is_the_peers_fault() -> None:
    for octets in (tune(), start() + open_ok(), start() + start(), start() + tune() + tune(), channel_open_ok(1)):
        with pytest.raises(PeerError):
            list(events_of(Connection(), octets))


# -- sending on a channel --------------------------------------------------------------------------------------------


def test_declaring_binding_and_consuming_are_encoded_as_specified() -> None:
    connection = new_client()
    take_outgoing(connection)
    connection.send(1, ExchangeDeclare(exchange="x", type="fanout", durable=True))
    connection.send(1, QueueDeclare(queue="q", durable=True, exclusive=True, arguments={"x-max-length": 5}))
    connection.send(1, QueueBind(queue="q", exchange="x", routing_key="a.*"))
    connection.send(1, BasicQos(prefetch_count=100))
    connection.send(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    connection.send(1, BasicAck(7, multiple=True))
    assert take_outgoing(connection) == (
        method(1, 40, 10, b"\0\0" + short("x") + short("fanout") + b"\x02" + long(b""))
        + method(1, 50, 10, b"\0\0" + short("q") + b"\x06" + long(short("x-max-length") + b"I\0\0\0\x05"))
        + method(1, 50, 20, b"\0\0" + short("q") + short("x") + short("a.*") + b"\0" + long(b""))
        + method(1, 60, 10, b"\0\0\0\0\0\x64\0")
        + method(1, 60, 20, b"\0\0" + short("q") + short("c") + b"\x02" + long(b""))
        + method(1, 60, 80, struct.pack(">QB", 7, 1))
    )


def test_a_large_body_is_split_to_the_agreed_frame_size() -> None:
    connection = new_client()
    list(events_of(connection, prologue(frame_max=4096)))
    take_outgoing(connection)
    body = bytes(range(256)) * 40
    connection.publish(1, PUBLISH, body, Properties(delivery_mode=2, priority=5, expiration="60000"))
    expected = method(1, 60, 40, b"\0\0" + short("") + short("perf") + b"\0")
    expected += frame(2, 1, struct.pack(">HHQH", 60, 0, len(body), 0x1900) + b"\x02\x05" + short("60000"))
    expected += b"".join(frame(3, 1, body[at : at + 4088]) for at in range(0, len(body), 4088))
    assert take_outgoing(connection) == expected


def test_published_messages_are_numbered_from_confirm_select_on() -> None:
    connection = new_client(published=0)
    list(events_of(connection, prologue()))
    for _ in range(3):
        connection.publish(1, PUBLISH, b"x")
        connection.publish(2, PUBLISH, b"x")
    assert (connection.unconfirmed(1), connection.unconfirmed(2)) == (3, 0)
    ack = method(1, 60, 80, struct.pack(">QB", 2, 1))
    assert list(events_of(connection, ack)) == [Confirmed(1, [(1, 2)], True)]
    assert connection.unconfirmed(1) == 1


# -- receiving -------------------------------------------------------------------------------------------------------


def test_a_client_reports_the_methods_of_a_server() -> None:
    client = new_client()
    data = prologue() + method(1, 50, 11, short("q") + struct.pack(">II", 5, 1))
    data += method(0, 10, 60, short("low on memory")) + method(0, 10, 61)
    data += method(1, 60, 30, short("c") + b"\x01")
    events = [event for event in events_of(client, data) if not isinstance(event, Opened | ChannelOpened)]
    assert events == [
        MethodReceived(1, QueueDeclareOk("q", 5, 1)),
        Blocked("low on memory"),
        Unblocked(),
        MethodReceived(1, BasicCancel("c", True)),
    ]


def test_a_blocked_connection_may_not_publish_until_it_is_unblocked() -> None:
    client = new_client()
    assert not client.publishable(1)
    list(events_of(client, prologue()))
    assert client.publishable(1)
    list(events_of(client, method(0, 10, 60, short("disk"))))
    assert not client.publishable(1)
    list(events_of(client, method(0, 10, 61)))
    assert client.publishable(1)


def test_channel_flow_is_handled_and_answered() -> None:
    client = new_client()
    list(events_of(client, prologue()))
    take_outgoing(client)
    assert list(events_of(client, method(1, 20, 20, b"\0"))) == [MethodReceived(1, ChannelFlow(False))]
    assert take_outgoing(client) == method(1, 20, 21, b"\0")
    assert not client.publishable(1)
    assert client.publishable(2)


def test_a_closed_channel_reports_its_reason_and_can_be_reopened() -> None:
    client = new_client()
    list(events_of(client, prologue()))
    take_outgoing(client)
    reason = "NOT_FOUND - no queue 'q' in vhost '/'"
    assert list(events_of(client, close(404, reason, channel=1))) == [ChannelClosed(1, 404, reason)]
    assert take_outgoing(client) == method(1, 20, 41)
    client.open_channel(1)
    assert list(events_of(client, channel_open_ok(1))) == [ChannelOpened(1)]


def test_messages_on_a_closing_channel_are_ignored() -> None:
    client = new_client()
    script = Script()
    for _ in range(3):
        script.message(Shape(), 1, 64)
    assert len(receive(client, prologue() + bytes(script.octets))) == 3
    client.close_channel(1)
    script.fragmented(Shape(), 1, 64, 10)
    assert receive(client, bytes(script.octets)) == []
    assert list(events_of(client, method(1, 20, 41))) == [ChannelClosed(1, 200, "")]


def test_a_closed_connection_reports_its_reason_and_reads_no_further() -> None:
    client = new_client()
    forced = close(320, "CONNECTION_FORCED - broker forced connection closure")
    events = list(events_of(client, prologue() + forced + HEARTBEAT))
    assert events[-1] == Closed(320, "CONNECTION_FORCED - broker forced connection closure")
    assert client.closed


def test_our_close_is_sent_once_and_its_answer_ends_the_connection() -> None:
    client = new_client()
    list(events_of(client, prologue()))
    take_outgoing(client)
    client.close()
    client.close()
    assert take_outgoing(client) == method(0, 10, 50, struct.pack(">H", 200) + short("") + b"\0\0\0\0")
    script = Script()
    script.message(Shape(), 1, 64)
    assert list(events_of(client, bytes(script.octets) + method(0, 10, 51))) == [Closed(200, "")]


def test_a_returned_message_is_complete() -> None:
    script = Script()
    script.returned(1, b"unroutable")
    (event,) = [e for e in events_of(new_client(), prologue() + bytes(script.octets)) if isinstance(e, Returned)]
    assert (event.method.reply_code, event.method.reply_text) == (312, "NO_ROUTE")
    assert (event.method.routing_key, event.body) == ("nowhere", b"unroutable")


def test_the_answer_to_get_is_a_message() -> None:
    octets = method(1, 60, 71, struct.pack(">QB", 9, 1) + short("") + short("q") + struct.pack(">I", 3))
    octets += Shape().header(1, 2) + frame(3, 1, b"hi")
    (event,) = [e for e in events_of(new_client(), prologue() + octets) if isinstance(e, Deliveries)]
    assert event.method == BasicGetOk(9, True, "", "q", 3)
    assert event.redelivered
    assert event.bodies.tobytes() == b"hi"


# -- protocol violations ---------------------------------------------------------------------------------------------

DELIVER = Shape().deliver(1, 1)
WRONG = {
    "an unknown frame type": b"\x05" + bytes(7),
    "a frame above the limit": struct.pack(">BHI", 1, 1, 131_073 - 8),
    "a wrong end": HEARTBEAT[:-1] + b"\x00",
    "a heartbeat on a channel": frame(8, 1, b""),
    "a heartbeat with content": frame(8, 0, b"x"),
    "an unopened channel": channel_open_ok(9),
    "a second open": channel_open_ok(1),
    "an unrequested close-ok": method(1, 20, 41),
    "a header without a method": Shape().header(1, 5),
    "a body without a method": frame(3, 1, b"x"),
    "a body without a header": DELIVER + frame(3, 1, b"x"),
    "two headers": DELIVER + Shape().header(1, 5) + Shape().header(1, 5),
    "a method inside a message": DELIVER + Shape().header(1, 5) + frame(3, 1, b"x") + DELIVER,
    "a body that is too long": DELIVER + Shape().header(1, 5) + frame(3, 1, b"x") + frame(3, 1, b"12345"),
    "an oversized message": DELIVER + Shape().header(1, MAX_MESSAGE_BYTES + 1) + frame(3, 1, b"x"),
    "content on channel 0": frame(3, 0, b"x"),
    "a channel method on channel 0": method(0, 20, 11, long(b"")),
    "a connection method on a channel": method(1, 10, 61),
    "a publish to a client": method(1, 60, 40, b"\0\0\0\0\0") + Shape().header(1, 0),
    "a request to a client": method(1, 50, 10, b"\0\0" + short("q") + b"\0" + long(b"")),
    "a tune on an open connection": tune(),
    "a name that is not text": method(0, 10, 60, b"\x01\xff"),
}


@pytest.mark.parametrize("octets", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_a_protocol_violation_ends_the_connection(octets: bytes, cut: bool) -> None:
    client = new_client()
    list(events_of(client, prologue()))
    with pytest.raises(PeerError):
        list(events_of(client, octets, range(len(octets)) if cut else ()))


# -- the server's side -----------------------------------------------------------------------------------------------


def exchange_bytes(client: Connection, server: Connection) -> tuple[list[object], list[object]]:
    """Carry bytes both ways until both are idle; returns the events of each."""
    received: tuple[list[object], list[object]] = ([], [])
    while client.outgoing or server.outgoing:
        received[1].extend(events_of(server, take_outgoing(client)))
        received[0].extend(events_of(client, take_outgoing(server)))
    return received


def test_our_client_and_our_server_connect_and_close() -> None:
    client = Connection(virtual_host="v", limits=Limits(5, 8192, 10))
    server = Connection(server=True, limits=Limits(9, 65_536, 60))
    exchange_bytes(client, server)
    assert client.limits == server.limits == Limits(5, 8192, 10)
    client.open_channel(3)
    client.send(3, QueueDeclare(queue="q"))
    received = exchange_bytes(client, server)
    assert received == ([ChannelOpened(3)], [ChannelOpened(3), MethodReceived(3, QueueDeclare(queue="q"))])
    server.send_content(3, BasicDeliver("c", 1, False, "", "q"), bytes(20_000))
    server.send_content(3, BasicReturn(312, "NO_ROUTE", "", "q"), b"back")
    received = exchange_bytes(client, server)
    assert [type(event) for event in received[0]] == [Deliveries, Returned]
    client.send(3, BasicAck(1))
    assert exchange_bytes(client, server)[1] == [MethodReceived(3, BasicAck(1))]
    client.close(200, "done")
    assert exchange_bytes(client, server) == ([Closed(200, "")], [Closed(200, "done")])


def test_a_server_answers_another_protocol_with_its_header() -> None:
    server = Connection(server=True)
    (event,) = events_of(server, b"AMQP\x00\x01\x00\x00")
    assert isinstance(event, Refused)
    assert take_outgoing(server) == HEADER


def test_a_client_cannot_open_more_channels_than_agreed() -> None:
    client, server = Connection(limits=Limits(channel_max=3)), Connection(server=True)
    exchange_bytes(client, server)
    client.open_channel(3)
    exchange_bytes(client, server)
    client.open_channel(4)
    with pytest.raises(PeerError, match="channel 4"):
        exchange_bytes(client, server)


def test_a_large_message_passes_in_the_smallest_frames() -> None:
    limits = Limits(frame_max=MIN_FRAME_MAX)
    client, server = Connection(limits=limits), Connection(server=True)
    exchange_bytes(client, server)
    client.open_channel(1)
    exchange_bytes(client, server)
    client.publish(1, PUBLISH, bytes(100_000))
    (received,) = exchange_bytes(client, server)[1]
    assert isinstance(received, Deliveries)
    assert received.bodies.shape == (1, 100_000)
