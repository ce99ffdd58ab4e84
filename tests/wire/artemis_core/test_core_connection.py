"""Does a Core connection send what brokers expect, and handle their answers correctly?"""

import struct
from typing import Any

import numpy as np
import pytest

from core_streams import (
    ACCEPTED,
    CREDITS,
    NAME,
    NO,
    PING,
    YES,
    Shape,
    client_of,
    exception,
    frame,
    large_message,
    listen,
    name,
    part,
    queue_info,
    response,
    string,
)
from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.artemis_core import packets as p
from crescendo.wire.artemis_core.connection import Connection
from crescendo.wire.artemis_core.events import Completed, Deliveries
from crescendo.wire.artemis_core.frames import HANDSHAKE, decode_frame, encode_frame, frame_length
from crescendo.wire.artemis_core.messages import CoreMessage
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.artemis_core.primitives import Reader, encode_string
from crescendo.wire.artemis_core.properties import JavaByte, decode_properties, encode_properties
from crescendo.wire.artemis_core.server import ServerConnection
from stream_feed import events_of, take_outgoing


def sent(client: Connection) -> list[tuple[Packet, int]]:
    """The queued packets and their channels."""
    octets, found = memoryview(take_outgoing(client)), []
    while octets:
        length = frame_length(octets, 0, len(octets), 2**20) or 0
        found.append(decode_frame(octets[:length], client.version))
        octets = octets[length:]
    return found


# -- bytes as in the sources of the broker -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "short", "12345678", "123456789", "ünï \0", "\U0001f3b5 of other planes", "x" * 4095]
)
def test_words_are_written_in_one_of_three_ways(text: str) -> None:
    octets = encode_string(text)
    assert Reader(memoryview(octets)).string() == text
    if text.isascii():
        assert octets == string(text)


def test_a_connection_begins_with_a_handshake_a_ping_and_a_session() -> None:
    client = Connection(NAME, user="ada", password="a longer password", client_id="us", ttl_ms=20_000)
    session = (
        string(NAME) + struct.pack(">qi", 10, 136) + YES + string("ada") + YES + string("a longer password")
        + struct.pack(">i???i?", 2**31 - 1, False, True, True, -1, False) + NO + YES + string("us")
    )  # fmt: skip
    assert take_outgoing(client) == HANDSHAKE + PING + frame(-18, session, 1)


def test_a_message_is_written_as_its_own_clients_write_it() -> None:
    client = client_of()
    client.send(7, b"body", producer=3, address="q", durable=True, priority=9, expiration_ms=5, properties={"a": "b"})
    routing = name("_AMQ_ROUTING_TYPE") + b"\3\1"
    properties = YES + struct.pack(">i", 2) + routing + name("a") + b"\x0a" + name("b")
    headers = struct.pack(">q", 0) + YES + name("q") + NO + struct.pack(">b?qqb", 4, True, 5, 0, 9) + properties
    rest = struct.pack(">?qi", True, 7, 3)
    assert take_outgoing(client) == frame(71, struct.pack(">i", 17) + b"body" + headers + rest)


def test_every_packet_is_read_as_it_was_written() -> None:
    packets: list[Packet] = [
        p.CreateConsumer(3, "q", "a = 1", True, True, 0),
        p.CreateQueue("a", "q", "x", False, True, True, False, 0, 5, True),
        p.CreateAddress("a", (0, 1)),
        p.QueueInfo(True, True, False, 3, 9, "s", "a", "n", True),
        p.AddressInfoV5(True, ("a", "b"), True, False),
        p.ExceptionPacket(105, "no", 7),
        p.ExceptionPacket(105, None, None),
        p.NullResponse(-1),
        p.RequestCredits(9, "q"),
        p.ReceivePart(b"part", True, 3),
        p.SendMessage(CoreMessage(5, "q", bytes(16), 4, True, 1, 2, 3, NO, b"body"), True, 8, 1),
        p.ReceiveLargeMessage(1, 2, 300, CoreMessage(5, None)),
        p.Commit(-1),
        p.Rollback(False),
        p.DisconnectV3("node"),
    ]
    for packet in packets:
        assert decode_frame(memoryview(encode_frame(packet, 136, 9)), 136) == (packet, 9)


def test_properties_of_every_type_are_understood() -> None:
    mine = {"t": True, "n": None, "b": JavaByte(-3), "l": 2**40, "d": 0.5, "s": "ü", "o": b"\0\1"}
    assert decode_properties(encode_properties(mine)) == mine
    theirs = (b"\5\0\7", b"\6\0\0\0\7", b"\x0b\0\x41", b"\x08" + struct.pack(">f", 0.5))
    encoded = YES + struct.pack(">i", 4) + b"".join(name(str(at)) + octets for at, octets in enumerate(theirs))
    assert decode_properties(encoded) == {"0": 7, "1": 7, "2": 65, "3": 0.5}
    with pytest.raises(ConfigError, match="cannot be the value of a property"):
        encode_properties({"x": [1]})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "damaged",
    [
        YES + struct.pack(">i", 10_000),
        YES + struct.pack(">i", -1),
        YES + struct.pack(">i", 1) + name("a") + b"\x63",
        YES + struct.pack(">i", 1) + name("a") + b"\x0a" + struct.pack(">i", 999),
        YES + struct.pack(">i", 0) + b"more",
    ],
)
def test_damaged_properties_are_the_peers_fault(damaged: bytes) -> None:
    with pytest.raises(PeerError):
        decode_properties(damaged)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_requests_are_answered_in_their_order() -> None:
    client = client_of()
    requests = [client.query_queue("q"), client.create_queue("q", "q"), client.add_consumer(1, "q")]
    assert requests == [1, 2, 3]
    events = list(events_of(client, queue_info(exists=False) + exception(101, "AMQ229019: exists") + queue_info()))
    assert events[0] == Completed(1, p.QueueInfo(False, True, False, 2, 77, None, "q", "q", True))
    assert events[1:] == [(2, "AMQ229019: exists", 101), Completed(3, events[2].answer)]


def test_answers_to_messages_and_to_requests_are_told_apart() -> None:
    client = client_of()
    client.commit()
    stream = response(0) + response(-1) + exception(210, "full", 1) + response(2)
    for batching in (True, False):
        client = client_of(batching=batching)
        client.commit()
        assert listen(client, stream) == [
            ("response", 0), ("completed", 1), ("rejected", 1, "full"), ("response", 2),
        ]  # fmt: skip


def test_an_older_version_is_tried_when_the_broker_does_not_know_ours() -> None:
    client = Connection(NAME, version=132)
    refusal = exception(108, "AMQ119031: incompatible", channel=1)
    assert listen(client, refusal * 2 + ACCEPTED) == [("connected", 130)]
    octets = take_outgoing(client)[len(HANDSHAKE) :]
    codes = []
    while octets:
        length = 4 + int.from_bytes(octets[:4], "big")
        codes.append(octets[4])
        octets = octets[length:]
    assert codes == [10, 0xEE, 0xEE, 30], "before version 131 a session has no client id"
    client = Connection(NAME, version=130)
    assert listen(client, refusal) == [("refused", 0, "AMQ119031: incompatible", 108)]


def test_a_refused_session_has_the_brokers_words() -> None:
    client = Connection(NAME)
    assert listen(client, exception(105, "AMQ229031: Unable\nto validate", channel=1)) == [
        ("refused", 0, "AMQ229031: Unable to validate", 105)
    ]


def test_credits_are_granted_or_refused() -> None:
    refused = frame(82, struct.pack(">i", 9) + name("q"))
    assert listen(client_of(), CREDITS + refused) == [("granted", 65_536), ("creditrefused", 9)]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (frame(11, NO, 0), None),
        (frame(124, NO + NO, 0), None),
        (frame(-19, NO + NO + b"\0" + NO + NO, 0), None),
        (frame(12, struct.pack(">q", 1)), "it closed the consumer"),
    ],
)
def test_a_broker_ends_a_connection(stream: bytes, reason: str | None) -> None:
    client = client_of()
    assert listen(client, stream + response(1)) == [("closed", reason)]
    assert client.closed


# -- large messages ----------------------------------------------------------------------------------------------------


def test_a_large_message_is_credited_part_by_part_and_delivered_once() -> None:
    client = client_of()
    frames = [large_message(7), part(b"abc", continues=True), part(b"defg", continues=False)]
    (event,) = events_of(client, b"".join(frames))
    assert isinstance(event, Deliveries)
    assert (event.bodies.tobytes(), event.ids.tobytes()) == (b"abcdefg", (9).to_bytes(8, "big"))
    assert event.is_credited
    assert event.frame_bytes == sum(map(len, frames))
    assert sent(client) == [(p.ConsumerCredits(1, len(octets)), 10) for octets in frames]


def test_a_large_text_is_transcoded() -> None:
    body = YES + name("text ü")
    (event,) = events_of(client_of(), large_message(len(body), code=3) + part(body, continues=False))
    assert event.bodies.tobytes() == "text ü".encode()


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (large_message(2**40), "where 1000 is the limit"),
        (large_message(-1), "where 1000 is the limit"),
        (large_message(5) + large_message(5), "before the last one was complete"),
        (part(b"x", continues=False), "that did not begin"),
        (large_message(2) + part(b"abc", continues=True), "a large message of 2 bytes has parts of 3 bytes"),
        (large_message(2) + part(b"a", continues=False), "a large message of 2 bytes has parts of 1 bytes"),
        (b"".join(large_message(2, consumer) for consumer in range(20)), "more than 16 consumers"),
    ],
)
def test_a_large_message_that_is_not_as_announced_is_the_peers_fault(stream: bytes, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        list(events_of(client_of(max_frame_bytes=1000), stream))


# -- violations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (struct.pack(">I", 2**31) + b"x", "is this a Core port of Artemis"),
        (struct.pack(">I", 8) + b"x" * 8, "is this a Core port of Artemis"),
        (frame(99), "type 99, which is unknown"),
        (frame(71, Shape().message(1, b"")[0][13:]), "truncated|only clients send"),
        (response(-1), "an answer to a request that was not made"),
        (frame(31, bytes(4), 1), "where the answer to a new session was expected"),
        (frame(21, bytes(8), 77), "channel 77"),
        (frame(80, struct.pack(">ii", 1, 999)), "truncated"),
        (frame(75, struct.pack(">i", 5)), "truncated"),
        (frame(75, struct.pack(">i", 2**31 - 1) + bytes(80)), "truncated"),
        (frame(-15, struct.pack(">?i", True, 2**31 - 1)), "announces"),
    ],
)
def test_a_violation_is_the_peers_fault(stream: bytes, message: str) -> None:
    for batching in (True, False):
        with pytest.raises(PeerError, match=message):
            list(events_of(client_of(batching=batching), stream))


def test_nothing_but_an_answer_is_expected_before_the_session() -> None:
    for stream in (response(0), Shape().message(1, b"x")[0], CREDITS):
        with pytest.raises(PeerError, match="where it means nothing"):
            list(events_of(Connection(NAME), stream))


# -- the server's side -------------------------------------------------------------------------------------------------


def served(server: ServerConnection, octets: bytes) -> list[Packet]:
    server.receive_buffer()[: len(octets)] = octets
    server.received(len(octets))
    found = []
    while (packet := server.next_packet()) is not None:
        server.respond(packet)
        found.append(packet)
    return found


def test_a_server_answers_its_client() -> None:
    server, client = ServerConnection(), Connection(NAME)
    events: list[Any] = []

    def exchange() -> None:
        served(server, take_outgoing(client))
        events.extend(events_of(client, take_outgoing(server)))

    exchange()
    client.query_queue("q")
    client.query_address("q")
    client.request_credits("q", 100)
    client.send(0, b"x", producer=1, address="q")
    client.acknowledge(1, np.zeros((1, 8), np.uint8), answered=True)
    client.disconnect()
    exchange()
    assert [type(event).__name__ for event in events] == [
        "Connected", "Completed", "Completed", "Granted", "Responses", "Completed", "Completed",
    ]  # fmt: skip
    assert server.closed


def test_a_server_refuses_what_it_does_not_know() -> None:
    with pytest.raises(PeerError, match="begins with b'STOMP\\\\r\\\\n'"):
        served(ServerConnection(), b"STOMP\r\n and more")
    with pytest.raises(PeerError, match="at this point of a connection"):
        served(ServerConnection(), HANDSHAKE + frame(67))
    server, client = ServerConnection(), Connection(NAME, version=140)
    served(server, take_outgoing(client))
    assert listen(client, take_outgoing(server)) == []
    assert client.version == 139, "it tries the next older one"
