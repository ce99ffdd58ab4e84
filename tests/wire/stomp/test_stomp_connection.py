"""Does a STOMP connection send what each version requires, and handle the answers correctly?"""

import contextlib
import time
from typing import Any

import pytest

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.stomp.client_frames import Ack, BrokerDialect, durable
from crescendo.wire.stomp.connection import Connection
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Failed
from crescendo.wire.stomp.handshake import Agreement, Heartbeats
from crescendo.wire.stomp.server import ServerConnection
from stomp_streams import CONNECTED_1_2, Shape, client_of, connected, listen, raw
from stream_feed import events_of, take_outgoing


def sent_lines(client: Connection) -> list[str]:
    """The lines of the one queued frame."""
    octets = take_outgoing(client)
    assert octets.endswith(b"\n\n\0")
    return octets[:-3].decode().split("\n")


# -- connecting ------------------------------------------------------------------------------------------------------


def test_a_client_offers_all_versions_and_signs_in() -> None:
    client = Connection(
        host="/", login="ada", passcode="a:b", client_id="me", heartbeats=Heartbeats(500, 1000), more={"x": "y"}
    )  # fmt: skip
    assert sent_lines(client) == [
        "CONNECT", "accept-version:1.0,1.1,1.2", "heart-beat:500,1000", "host:/", "login:ada", "passcode:a:b",
        "client-id:me", "x:y",
    ]  # fmt: skip


def test_a_client_without_1_0_sends_stomp_instead_of_connect() -> None:
    assert sent_lines(Connection(host="h", versions=[Version.V1_2]))[:2] == ["STOMP", "accept-version:1.2"]


def test_a_client_of_1_0_alone_sends_only_1_0_headers() -> None:
    assert sent_lines(Connection(host="h", versions=[Version.V1_0])) == ["CONNECT", "host:h"]


@pytest.mark.parametrize(
    ("ours", "theirs", "send_every_ms", "expect_every_ms"),
    [
        (Heartbeats(500, 1000), "0,0", 0, 0),
        (Heartbeats(500, 1000), "2000,300", 500, 2000),
        (Heartbeats(500, 1000), "0,700", 700, 0),
        (Heartbeats(0, 1000), "10,10", 0, 1000),
        (Heartbeats(0, 0), "10,10", 0, 0),
    ],
)
def test_each_direction_uses_the_slower_heart_beat(
    ours: Heartbeats, theirs: str, send_every_ms: int, expect_every_ms: int
) -> None:
    client = Connection(host="/", heartbeats=ours)
    (event,) = events_of(client, raw("CONNECTED", ["version:1.2", f"heart-beat:{theirs}", "server:s/1"]))
    assert event == Connected(Agreement(Version.V1_2, send_every_ms, expect_every_ms), "s/1")


def test_a_server_that_names_no_version_speaks_1_0_without_heart_beats() -> None:
    client = Connection(host="/", heartbeats=Heartbeats(10, 10))
    (event,) = events_of(client, raw("CONNECTED", ["session:1", "heart-beat:10,10"]))
    assert event == Connected(Agreement(Version.V1_0, 0, 0), "")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (raw("CONNECTED", ["version:1.3"]), "1.3"),
        (raw("CONNECTED", ["version:1.2", "heart-beat:1"]), "heart-beat"),
        (raw("CONNECTED", ["version:1.2", "heart-beat:1,-1"]), "heart-beat"),
        (raw("CONNECTED", ["version:1.2", "heart-beat:1,2,3"]), "heart-beat"),
        (raw("RECEIPT", ["receipt-id:1"]), "STOMP port"),
        (b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n\0", "STOMP port"),
        (connected("1.2") * 2, "second CONNECTED"),
        (connected("1.2") + raw("MESSAGE", ["subscription:0"]), "message-id"),
        (connected("1.2") + raw("MESSAGE", ["message-id:0"]), "subscription"),
        (connected("1.2") + raw("RECEIPT"), "without a receipt-id"),
        (connected("1.2") + raw("SEND", ["destination:/queue/q"]), "not a command"),
    ],
)
def test_a_frame_that_a_server_must_not_send_is_its_fault(answer: bytes, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        list(events_of(Connection(host="/"), answer))


def test_a_version_that_was_not_offered_is_refused() -> None:
    with pytest.raises(PeerError, match="not offered"):
        list(events_of(Connection(host="/", versions=[Version.V1_1]), CONNECTED_1_2))


@pytest.mark.parametrize("prologue", [b"", CONNECTED_1_2], ids=["before", "after"])
def test_an_error_ends_the_connection_and_quotes_the_broker(prologue: bytes) -> None:
    client = Connection(host="/")
    lines = ["message:Bad CONNECT", "content-type:text/plain", "receipt-id:17", "content-length:24"]
    data = prologue + raw("ERROR", lines, b"Access refused\nfor 'x'\r\n") + b"\n"
    assert list(events_of(client, data))[-1] == Failed("Bad CONNECT: Access refused for 'x'", "17")
    assert client.closed
    assert listen(client, raw("RECEIPT", ["receipt-id:1"])) == []


# -- commands --------------------------------------------------------------------------------------------------------


def test_acknowledgements_name_the_message_as_their_version_does() -> None:
    expected = {
        "1.0": ["message-id:m7"],
        "1.1": ["subscription:s", "message-id:m7"],
        "1.2": ["id:7"],
    }
    for version, lines in expected.items():
        client = client_of(version)
        data = raw("MESSAGE", ["subscription:s", "message-id:m7", "ack:7", "destination:d"], b"x")
        (event,) = events_of(client, data)
        assert isinstance(event, Deliveries)
        client.ack("s", event.ids[0], transaction="t", receipt="r")
        assert sent_lines(client) == ["ACK", *lines, "transaction:t", "receipt:r"]
        if version != "1.0":
            client.nack("s", event.ids[0])
            assert sent_lines(client) == ["NACK", *lines]


def test_1_0_refuses_what_it_cannot_express() -> None:
    client = client_of("1.0")
    with pytest.raises(ConfigError, match="NACK"):
        client.nack("s", "1")
    with pytest.raises(ConfigError, match="client-individual"):
        client.subscribe("s", "/queue/q", Ack.CLIENT_INDIVIDUAL)
    client.unsubscribe("s", destination="/queue/q")
    assert sent_lines(client) == ["UNSUBSCRIBE", "id:s", "destination:/queue/q"]


def test_subscriptions_carry_their_mode_selector_and_the_brokers_own_headers() -> None:
    client = client_of()
    for broker, lines in {
        BrokerDialect.ACTIVEMQ: ["activemq.subscriptionName:n"],
        BrokerDialect.ARTEMIS: ["durable-subscription-name:n"],
        BrokerDialect.RABBITMQ: ["durable:true", "auto-delete:false", "x-queue-name:n"],
    }.items():
        client.subscribe("s", "/topic/t", Ack.CLIENT_INDIVIDUAL, selector="a = 'b:c'", more=durable(broker, "n"))
        assert sent_lines(client) == [
            "SUBSCRIBE", "id:s", "destination:/topic/t", "ack:client-individual", "selector:a = 'b\\cc'", *lines,
        ]  # fmt: skip
        client.unsubscribe("s", more=durable(broker, "n"), receipt="r")
        assert sent_lines(client) == ["UNSUBSCRIBE", "id:s", *lines, "receipt:r"]


def test_transactions_and_disconnect() -> None:
    client = client_of()
    client.begin("t")
    assert sent_lines(client) == ["BEGIN", "transaction:t"]
    client.commit("t", receipt="1")
    assert sent_lines(client) == ["COMMIT", "transaction:t", "receipt:1"]
    client.abort("t")
    assert sent_lines(client) == ["ABORT", "transaction:t"]
    client.disconnect(receipt="bye")
    assert sent_lines(client) == ["DISCONNECT", "receipt:bye"]
    client.heartbeat()
    assert take_outgoing(client) == b"\n"


def test_a_message_carries_all_given_headers() -> None:
    client = client_of()
    client.send(
        "/queue/q", b"a\0b", persistent=True, priority=7, ttl_ms=5, now_ms=100, transaction="t", receipt="r",
        more={"colour": "red"},
    )  # fmt: skip
    lines = [
        "content-length:3", "destination:/queue/q", "persistent:true", "priority:7", "expires:105", "colour:red",
        "transaction:t", "receipt:r",
    ]  # fmt: skip
    assert take_outgoing(client) == raw("SEND", lines, b"a\0b")
    client.send("/queue/q", b"text", sized=False)
    assert take_outgoing(client) == raw("SEND", ["destination:/queue/q"], b"text")
    with pytest.raises(ConfigError, match="ttl"):
        client.send("/queue/q", b"", ttl_ms=5)
    with pytest.raises(ConfigError, match="already set"):
        client.send("/queue/q", b"", more={"destination": "/queue/other"})


def test_nothing_follows_connect_before_it_is_answered() -> None:
    client = Connection(host="/")
    take_outgoing(client)
    client.heartbeat()
    client.disconnect()
    assert take_outgoing(client) == b""


# -- messages --------------------------------------------------------------------------------------------------------


def test_a_message_larger_than_the_buffer_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    octets, meaning = Shape().message(1, body)
    assert listen(client_of(), octets * 2, range(0, len(octets), 100_000)) == [meaning] * 2


def test_an_announced_length_allocates_no_memory_before_its_bytes_arrive() -> None:
    client = client_of()
    list(events_of(client, b"MESSAGE\nsubscription:0\nmessage-id:1\ncontent-length:100000000\n\nabc"))
    assert len(client.receive_buffer()) < 1 << 20


@pytest.mark.parametrize("sized", [True, False])
def test_a_body_beyond_the_limit_is_refused(sized: bool) -> None:
    client = client_of(max_body_bytes=1000)
    octets, _ = Shape(sized=sized).message(1, b"x" * 1001)
    with pytest.raises(PeerError, match="1000"):
        list(events_of(client, octets))


def test_the_start_of_a_message_is_recognised() -> None:
    client = client_of()
    assert list(events_of(client, b"\nMESSAG")) == []
    assert not client.begins_with_message
    assert list(events_of(client, b"E")) == []
    assert client.begins_with_message
    client = client_of()
    list(events_of(client, raw("RECEIPT", ["receipt-id:1"]) + b"\n"))
    assert not client.begins_with_message


# -- the server side -------------------------------------------------------------------------------------------------


def exchange(client: Connection, server: ServerConnection) -> list[tuple[str, dict[str, str], bytes]]:
    """Let the server read the client's output; returns the frames."""
    return list(frames_of(server, take_outgoing(client)))


def frames_of(server: ServerConnection, octets: bytes) -> list[tuple[str, dict[str, str], bytes]]:
    server.receive_buffer()[: len(octets)] = octets
    server.received(len(octets))
    frames: list[Any] = []
    while (frame := server.next_frame()) is not None:
        frames.append((frame.command, frame.headers, bytes(frame.body)))
    return frames


@pytest.mark.parametrize("version", list(Version))
def test_client_and_server_understand_each_other_in_every_version(version: Version) -> None:
    client = Connection(host="/", versions=[version], heartbeats=Heartbeats(5, 7))
    server = ServerConnection(heartbeats=Heartbeats(11, 3))
    assert [command for command, _, _ in exchange(client, server)] == ["STOMP" if version != "1.0" else "CONNECT"]
    assert listen(client, take_outgoing(server)) == [("connected", version)]
    assert server.agreement == Agreement(version, *((0, 0) if version == "1.0" else (11, 5)))
    client.send("/queue/a\\b", b"x\0", receipt="1")
    assert exchange(client, server) == [
        ("SEND", {"destination": "/queue/a\\b", "content-length": "2", "receipt": "1"}, b"x\0")
    ]
    server.receipt("1")
    server.message({"subscription": "0", "message-id": "m:1", "ack": "a:1"}, b"y\0")
    server.error("over", "and out")
    name = "a:1" if version == "1.2" else "m:1"
    assert listen(client, take_outgoing(server)) == [
        ("receipt", "1"), ("message", "0", name, False, b"y\0"), ("failed", "over: and out"),
    ]  # fmt: skip


def test_a_server_without_a_common_version_sends_an_error() -> None:
    server = ServerConnection(versions=[Version.V1_0, Version.V1_1])
    frames_of(server, raw("STOMP", ["accept-version:1.2,2.0", "host:/"]))
    assert server.closed
    client = Connection(host="/")
    assert listen(client, take_outgoing(server)) == [("failed", "Supported protocol versions are 1.0,1.1")]


@pytest.mark.parametrize("octets", [raw("SEND", ["destination:q"]), raw("CONNECT") + raw("MESSAGE")])
def test_a_frame_that_a_client_must_not_send_is_its_fault(octets: bytes) -> None:
    with pytest.raises(PeerError):
        frames_of(ServerConnection(), octets)


@pytest.mark.parametrize("octets", [b"\n" * 400_000, b"M\n\n\0" * 50_000, b"MESSAGE\r\na:\r\n\r\n\0" * 20_000])
def test_many_small_things_take_bounded_time(octets: bytes) -> None:
    start_s = time.process_time()
    with contextlib.suppress(PeerError):
        list(events_of(Connection(host="/"), connected("1.0") + octets))
    assert time.process_time() - start_s < 10
