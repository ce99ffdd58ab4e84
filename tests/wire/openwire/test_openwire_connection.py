"""Does an OpenWire connection send what the specification requires, and handle the answers correctly?"""

import struct
from typing import Any

import numpy as np
import pytest

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.openwire import control_commands as c
from crescendo.wire.openwire.connection import Connection
from crescendo.wire.openwire.events import Connected, Deliveries
from crescendo.wire.openwire.frames import decode_frame, encode_frame, frame_length
from crescendo.wire.openwire.identifiers import (
    ConnectionId,
    ConsumerId,
    LocalTransactionId,
    QueueDestination,
    TopicDestination,
)
from crescendo.wire.openwire.messages import AckType, BytesMessage, MessageAck, MessageDispatch
from crescendo.wire.openwire.negotiation import Agreement
from crescendo.wire.openwire.primitive_map import decode_map, encode_map
from crescendo.wire.openwire.primitives import Reader, encode_utf
from crescendo.wire.openwire.structures import Structure, encode_structure
from crescendo.wire.response_window import ResponseWindow
from openwire_streams import (
    ACCEPTED,
    BROKER_INFO,
    KEEP_ALIVE,
    NAME,
    NO,
    YES,
    Shape,
    client_of,
    command,
    consumer_id,
    destination,
    exception_response,
    frame,
    listen,
    producer_id,
    response,
    utf,
    wire_format,
)
from stream_feed import events_of, take_outgoing


def sent(client: Connection) -> list[Structure]:
    """The queued commands."""
    octets, found = memoryview(take_outgoing(client)), []
    while octets:
        length = frame_length(octets, 0, len(octets), 2**20) or 0
        found.append(decode_frame(octets[:length], client.version))
        octets = octets[length:]
    return found


# -- bytes of the specification ----------------------------------------------------------------------------------------


def test_the_first_command_is_the_wire_format_in_version_1() -> None:
    client = Connection(NAME, host="h", inactivity_ms=5000, max_frame_bytes=9999)
    octets = take_outgoing(client)
    assert octets[4:13] == b"\x01ActiveMQ"
    assert octets[13:18] == struct.pack(">i", 12) + YES
    assert decode_map(octets[22:]) == {
        "StackTraceEnabled": False, "TcpNoDelayEnabled": True, "CacheEnabled": False, "SizePrefixDisabled": False,
        "TightEncodingEnabled": False, "MaxInactivityDuration": 5000, "MaxInactivityDurationInitalDelay": 5000,
        "MaxFrameSize": 9999, "ProviderName": "Crescendo", "Host": "h",
    }  # fmt: skip


def test_a_client_signs_in_with_the_agreed_version() -> None:
    client = Connection(NAME, user="ada", password="ü", client_id="me")
    take_outgoing(client)
    assert list(events_of(client, wire_format(11))) == []
    rest = YES + b"\x78" + YES + utf(NAME) + YES + utf("me") + YES + utf("ü") + YES + utf("ada")
    rest += NO + NO * 2 + YES + NO * 2 + NO
    assert take_outgoing(client) == command(3, -1, True, rest)
    (event,) = events_of(client, BROKER_INFO + response(-1))
    assert event == Connected(Agreement(11, 65 * 2**20, 0, "Broker"), "broker")
    assert take_outgoing(client) == command(4, 0, False, YES + b"\x79" + YES + utf(NAME) + struct.pack(">q", 1))


def test_a_message_has_the_bytes_of_the_specification() -> None:
    client = client_of()
    client.send(4, b"abc", producer=1, destination=QueueDestination("q"), persistent=True, priority=9, expiration_ms=77)
    rest = (
        producer_id(NAME) + destination("q") + NO + NO + YES + b"\x6e" + NO + producer_id(NAME)
        + struct.pack(">qq", 5, 0) + NO + NO + bytes(4) + NO + struct.pack(">?qb", True, 77, 9) + NO + bytes(8) + NO
        + YES + b"\0\0\0\3abc" + NO + NO + NO + NO + bytes(4) + NO + bytes(8) + NO + NO + NO + NO + bytes(16) + NO
    )  # fmt: skip
    assert take_outgoing(client) == command(24, 4, True, rest)


def test_a_consumer_has_the_bytes_of_the_specification() -> None:
    client = client_of()
    assert client.add_consumer(1, TopicDestination("t"), prefetch=7, selector="a=1", subscription="s") == -2
    rest = consumer_id() + NO + destination("t", 101) + struct.pack(">ii", 7, 0) + YES + YES + utf("a=1")
    rest += YES + utf(NAME) + YES + utf("s") + NO * 3 + b"\0" + NO + NO + NO * 3 + NO
    assert take_outgoing(client) == command(5, -2, True, rest)


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("ascii", b"ascii"),
        ("ü€", "ü€".encode()),
        ("a\0b", b"a\xc0\x80b"),
        ("\U0001f600", b"\xed\xa0\xbd\xed\xb8\x80"),  # from the table of DataInput.readUTF: two surrogates
    ],
)
def test_texts_are_in_the_modified_utf_8_of_java(text: str, octets: bytes) -> None:
    assert encode_utf(text) == utf(octets)
    assert Reader(memoryview(utf(octets))).utf() == text
    assert Reader(memoryview(utf(text.encode()))).utf() == text


@pytest.mark.parametrize("text", ["\ud800", "x" * 65_536])
def test_texts_that_cannot_be_encoded_are_our_users_mistake(text: str) -> None:
    with pytest.raises(ConfigError):
        encode_utf(text)


def test_maps_hold_every_primitive_of_java() -> None:
    flat = {"n": None, "b": True, "i": -(2**40), "f": 1.5, "s": "ü", "o": b"\0\xff"}
    assert decode_map(encode_map(flat)) == flat
    values = {
        "byte": b"\x02\xff", "char": b"\x03\x00\x41", "short": b"\x04\xff\xfe", "int": b"\x05\x7f\xff\xff\xff",
        "float": b"\x08\x3f\xc0\0\0", "big": b"\x0d\0\0\0\2ab", "map": b"\x0b\0\0\0\1\0\1x\x0b\xff\xff\xff\xff",
        "list": b"\x0c\0\0\0\2\0\x01\x01",
    }  # fmt: skip
    octets = struct.pack(">i", len(values)) + b"".join(utf(name) + value for name, value in values.items())
    assert decode_map(octets) == {
        "byte": -1, "char": 65, "short": -2, "int": 2**31 - 1, "float": 1.5, "big": "ab", "map": None, "list": None,
    }  # fmt: skip


# -- negotiation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        ({}, {"MaxFrameSize": 2**63 - 1, "MaxInactivityDuration": 30_000}, (65 * 2**20, 0)),
        ({"inactivity_ms": 10_000}, {"MaxInactivityDuration": 30_000}, (65 * 2**20, 10_000)),
        ({"inactivity_ms": 10_000}, {"MaxInactivityDuration": 0}, (65 * 2**20, 0)),
        ({"max_frame_bytes": 5000}, {"MaxFrameSize": 4000}, (4000, 0)),
        ({"max_frame_bytes": 4000}, {"MaxFrameSize": 0}, (4000, 0)),
    ],
)
def test_the_smaller_of_both_terms_holds(ours: dict[str, int], theirs: dict[str, int], agreed: tuple[int, int]) -> None:
    client = Connection(NAME, **ours)
    list(events_of(client, wire_format(12, **theirs)))
    assert client.agreement is not None
    assert (client.agreement.max_frame_bytes, client.agreement.inactivity_ms) == agreed


@pytest.mark.parametrize(("ours", "theirs", "agreed"), [(12, 12, 12), (12, 9, 9), (10, 12, 10), (12, 99, 12)])
def test_the_lower_version_holds(ours: int, theirs: int, agreed: int) -> None:
    client = Connection(NAME, version=ours)
    list(events_of(client, wire_format(theirs)))
    assert client.version == agreed


@pytest.mark.parametrize(
    ("greeting", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is this an OpenWire port"),
        (frame(b"\x01ActiveMX" + bytes(4) + NO), "is this an OpenWire port"),
        (response(1), "is this an OpenWire port"),
        (wire_format(0), "version 0"),
        (wire_format(12, MaxFrameSize=100), "at most 100 bytes"),
        (wire_format(12) + wire_format(12), "only clients send"),
        (ACCEPTED + command(3, 0, False, NO * 11), "only clients send"),
        (ACCEPTED + frame(b"\x63" + bytes(9)), "type 99"),
        (ACCEPTED + frame(b"\x64" + NO), "QueueDestination where OpenWireCommand or WireFormatInfo was expected"),
        (ACCEPTED + command(30, 0, False, bytes(5)), "1 bytes after the last field"),
        (ACCEPTED + command(30, 0, False, bytes(3)), "truncated"),
        (ACCEPTED + b"\xff\xff\xff\xff", "4294967295 bytes where"),
        (ACCEPTED + bytes(4), "a frame of 0 bytes"),
        (ACCEPTED + command(21, 0, False, consumer_id() + NO + YES + b"\x64" + NO), "QueueDestination where Message"),
        (ACCEPTED + command(2, 0, False, NO + NO + YES + b"\x7f\xff" + NO), "32767 structures"),
        (ACCEPTED + command(2, 0, False, (NO + NO + YES + b"\0\1" + YES + b"\2" + bytes(5)) * 20), "nested deeper"),
    ],
)
def test_a_violation_is_the_peers_fault(greeting: bytes, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        list(events_of(Connection(NAME), greeting))


def test_a_frame_larger_than_agreed_is_refused_at_once() -> None:
    client = Connection(NAME, max_frame_bytes=5000)
    list(events_of(client, wire_format(12, MaxFrameSize=4000) + response(-1)))
    with pytest.raises(PeerError, match="a frame of 4001 bytes where 4000 is the limit"):
        list(events_of(client, struct.pack(">I", 4001)))


# -- commands ----------------------------------------------------------------------------------------------------------


def test_commands_have_negative_ids_and_messages_do_not() -> None:
    client = client_of()
    transaction = LocalTransactionId(8, ConnectionId(NAME))
    assert [client.begin(8), client.commit(8), client.rollback(8)] == [-2, -3, -4]
    assert client.remove_subscription("s") == -5
    assert client.remove_consumer(3, last_delivered=9) == -6
    assert client.disconnect() == -7
    client.heartbeat()
    assert sent(client) == [
        c.TransactionInfo(-2, True, ConnectionId(NAME), transaction, 0),
        c.TransactionInfo(-3, True, ConnectionId(NAME), transaction, 2),
        c.TransactionInfo(-4, True, ConnectionId(NAME), transaction, 4),
        c.RemoveSubscriptionInfo(-5, True, ConnectionId(NAME), "s", NAME),
        c.RemoveInfo(-6, True, ConsumerId(NAME, 1, 3), 9),
        c.RemoveInfo(-7, True, ConnectionId(NAME)),
        c.ShutdownInfo(),
        c.KeepAliveInfo(),
    ]


def test_answers_to_messages_and_to_commands_are_told_apart() -> None:
    stream = response(5) + response(-3) + exception_response(6, "full") + exception_response(-4, "no\n such  queue")
    expected = [("response", 5), ("completed", -3), ("rejected", 6, "full"), ("refused", -4, "no such queue")]
    for batching in (True, False):
        assert listen(client_of(batching=batching), stream) == expected


@pytest.mark.parametrize(
    ("octets", "meaning"),
    [
        (command(16, 0, False, YES + YES + utf("c") + YES + utf("bad ack") + NO), [("closed", "bad ack")]),
        (
            command(16, 0, False, YES + YES + utf("java.io.EOFException") + NO + NO),
            [("closed", "java.io.EOFException")],
        ),
        (command(16, 0, False, NO + NO), [("closed", "no reason given")]),
        (command(11, 0, False), [("closed", None)]),
        (command(18, 0, False, YES + NO * 4 + NO * 4), [("closed", None)]),
        (command(18, 0, False, NO * 5 + YES + utf("tcp://b") + NO + YES + NO), []),
        (command(17, 0, False, NO + YES + consumer_id() + bytes(4) + NO * 3), [("closed", "it closed the consumer")]),
        (command(17, 0, False, NO + NO + consumer_id() + bytes(4) + NO * 3), []),
        (command(19, 0, False, producer_id(NAME, 4) + struct.pack(">i", 512)), [("released", 4, 512)]),
        (command(21, 0, False, consumer_id() + destination("q") + NO + bytes(4)), []),  # the end of a browse
        (KEEP_ALIVE, []),
    ],
)
def test_what_a_broker_says_about_the_connection(octets: bytes, meaning: list[tuple[Any, ...]]) -> None:
    client = client_of()
    assert listen(client, octets) == meaning
    assert take_outgoing(client) == b""


def test_a_keep_alive_that_asks_for_an_answer_gets_one() -> None:
    client = client_of()
    assert listen(client, command(10, 0, True)) == []
    assert take_outgoing(client) == KEEP_ALIVE


def test_messages_of_the_broker_about_itself_are_marked() -> None:
    octets = Shape(queue="ActiveMQ.Advisory.Connection").message(1, b"x")[0] + Shape().message(1, b"x")[0]
    events = [event for event in events_of(client_of(), octets) if isinstance(event, Deliveries)]
    assert [event.advisory for event in events] == [True, False]


def test_deliveries_are_acknowledged_with_the_ids_that_they_came_with() -> None:
    client = client_of()
    shape = Shape(text_view="ID:x")
    stream = b"".join(shape.message(number, b"body")[0] for number in range(3))
    (event,) = events_of(client, stream)
    first, last = event.ids[0].tobytes(), event.ids[-1].tobytes()
    assert (first, last) == (shape.message_id(0), shape.message_id(2))
    client.acknowledge_span(event.consumer, event.destination, first, last, 3)
    client.acknowledge(event.consumer, event.destination, event.ids[1:], ack_type=AckType.POISON, answered=True)
    head = destination("q") + NO + consumer_id()
    span = head + b"\2" + first + last + struct.pack(">i", 3) + NO
    each = [head + b"\1" + NO + shape.message_id(number) + struct.pack(">i", 1) + NO for number in (1, 2)]
    assert take_outgoing(client) == command(22, 0, False, span) + b"".join(command(22, -2, True, one) for one in each)


@pytest.mark.parametrize("version", range(1, 13))
def test_every_version_reads_what_it_writes(version: int) -> None:
    """The lengths that fields of later versions add, counted by hand in the specification of each version."""
    message = BytesMessage(content=b"x", droppable=True)
    values: list[Structure] = [
        c.BrokerInfo(name="b", upload_url="u"), c.ConnectionInfo(user="u", client_ip="i"), c.ProducerInfo(),
        c.ConsumerInfo(prefetch=5, client_id="c"), c.RemoveInfo(last_delivered=3), MessageAck(message_count=3),
        MessageDispatch(message=message), c.ConsumerControl(prefetch=4), c.ConnectionControl(token=b"t"),
    ]  # fmt: skip
    for value in values:
        octets = encode_frame(value, version)
        again = decode_frame(memoryview(octets), version)
        assert encode_frame(again, version) == octets
    added = {2: 1, 3: 1 + 8 + 8, 10: 1}  # droppable; cluster and two times; the first of a group
    grown = sum(size for since, size in added.items() if since <= version)
    assert len(encode_structure(message, version)) == len(encode_structure(message, 1)) + grown


# -- the window of responses -------------------------------------------------------------------------------------------


def answered(window: ResponseWindow, *numbers: int) -> list[int]:
    return window.answered(np.array(numbers, np.int64)).tolist()


def test_repeated_answers_count_once_and_late_ones_still_count() -> None:
    window = ResponseWindow(8)
    window.send(6)
    assert (window.room, answered(window, 0, 0, 1, 1)) == (2, [0, 1])
    assert (answered(window, 3, 3), window.room) == ([3], 4)
    assert (answered(window, 1, 0), window.room) == ([], 4)
    assert (answered(window, 5, 2, 4, 2), window.room) == ([2, 4, 5], 8)


def test_answers_wrap_around_the_window_and_around_the_command_ids() -> None:
    window = ResponseWindow(8)
    window.sent = window._oldest = 2**31 - 3
    window.send(7)
    assert answered(window, 2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1) == [2**31 - 3 + n for n in range(5)]
    assert window.room == 6
    window.send(6)
    assert window.room == 0
    assert answered(window, *range(2, 10)) == [2**31 - 3 + n for n in range(5, 13)]
    assert window.room == 8


def test_an_answer_to_what_was_never_sent_is_the_peers_fault() -> None:
    window = ResponseWindow(8)
    window.send(2)
    with pytest.raises(PeerError, match="a response to message 2; 2 were sent"):
        answered(window, 0, 2)
