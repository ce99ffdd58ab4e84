"""Does a connection handle sign-in, windows, credit, limits and the peer's reason for closing?"""

from typing import Any

import pytest

from amqp10_streams import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL_HEADER,
    Script,
    Shape,
    attach,
    begin_frame,
    close,
    detach,
    disposition,
    error,
    flattened,
    flow,
    frame,
    mechanisms,
    new_client,
    open_frame,
    outcome,
    prologue,
    receive,
    uint,
)
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import (
    Attached,
    Begun,
    Closed,
    Deliveries,
    Detached,
    Ended,
    Event,
    Opened,
    Refused,
    Settled,
)
from crescendo.wire.amqp10.frames import decode_frame
from crescendo.wire.amqp10.handshake import Credentials
from crescendo.wire.amqp10.links import RECEIVER
from crescendo.wire.amqp10.performatives import Attach, Close, Detach, End, Flow, Open, Released, Transfer
from stream_feed import events_of, take_outgoing


def sent_performatives(connection: Connection, kind: type) -> list[Any]:
    """The queued performatives of one type, taken from the connection."""
    data = memoryview(take_outgoing(connection))
    found = []
    while data:
        if bytes(data[:4]) == b"AMQP":
            data = data[8:]
            continue
        length = int.from_bytes(data[:4], "big")
        performative = decode_frame(data[:length]).performative
        if isinstance(performative, kind):
            found.append(performative)
        data = data[length:]
    return found


def exchange_bytes(client: Connection, server: Connection) -> tuple[list[Event], list[Event]]:
    """Carry bytes both ways until both are idle; returns the events of each."""
    received: tuple[list[Event], list[Event]] = ([], [])
    while client.outgoing or server.outgoing:
        received[1].extend(events_of(server, take_outgoing(client)))
        received[0].extend(events_of(client, take_outgoing(server)))
    return received


def client_with_sender(data: bytes) -> Connection:
    """A client with one sending link that has read these bytes of a server."""
    client = new_client()
    for event in events_of(client, data):
        if isinstance(event, Begun):
            client.attach_sender("out", "q", settled=False)
    take_outgoing(client)
    return client


def sender_prologue(*, max_frame_size: int = 65_536, window: int = 2**31 - 1) -> bytes:
    return (
        SASL_HEADER
        + mechanisms("ANONYMOUS")
        + outcome(0)
        + AMQP_HEADER
        + open_frame(max_frame_size=max_frame_size)
        + begin_frame(incoming_window=window)
        + attach("out", 0, receives=True)
    )


# -- sign-in ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credentials", [None, Credentials("guest", "gu:est é")])
def test_both_sides_sign_in_and_open(credentials: Credentials | None) -> None:
    client = Connection(container_id="me", hostname="host", credentials=credentials, idle_time_out_ms=7000)
    server = Connection(container_id="you", server=True, credentials=credentials, idle_time_out_ms=9000)
    at_client, at_server = exchange_bytes(client, server)
    assert [Opened("you"), Begun()] == at_client
    assert [Opened("me"), Begun()] == at_server
    assert (client.remote_idle_time_out_ms, server.remote_idle_time_out_ms) == (9000, 7000)
    assert client.remote_max_frame_size == server.remote_max_frame_size == 65_536


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (Credentials("guest", "wrong"), "user 'guest' with this password"),
        (Credentials("other", "secret"), "user 'other'"),
        (Credentials("guest", ""), "user 'guest'"),
        (None, "offers PLAIN for sign-in but not ANONYMOUS; give a user and password"),
    ],
)
def test_wrong_credentials_are_refused_with_a_reason(credentials: Credentials | None, reason: str) -> None:
    client = Connection(container_id="me", credentials=credentials)
    server = Connection(container_id="you", server=True, credentials=Credentials("guest", "secret"))
    at_client, at_server = exchange_bytes(client, server)
    assert len(at_client) == 1
    assert isinstance(at_client[0], Refused)
    assert reason in at_client[0].reason
    assert "secret" not in at_client[0].reason
    assert not any(isinstance(event, Opened) for event in at_server)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Credentials("guest", "secret"))


def test_plain_where_only_anonymous_is_offered_is_refused_with_the_cure() -> None:
    client = Connection(container_id="me", credentials=Credentials("guest", "guest"))
    [refused] = events_of(client, SASL_HEADER + mechanisms("ANONYMOUS"))
    assert "leave user and password out" in refused.reason


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_failed_authentication_names_the_sasl_outcome(code: int) -> None:
    [refused] = events_of(new_client(), SASL_HEADER + mechanisms("ANONYMOUS") + outcome(code))
    assert isinstance(refused, Refused)
    assert str(code) in refused.reason


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"),
        (AMQP_HEADER, "does not accept a sign-in"),
        (b"AMQP\x02\x01\x00\x00", "protocol 2"),
    ],
)
def test_another_protocol_is_named(header: bytes, reason: str) -> None:
    for cuts in ([], range(len(header))):
        client = new_client()
        [refused] = events_of(client, header, cuts)
        assert isinstance(refused, Refused)
        assert reason in refused.reason
        assert client.closed


def test_a_second_sign_in_request_is_refused_with_the_cure() -> None:
    """RabbitMQ 3.10 accepts an anonymous sign-in, then requests another one."""
    [refused] = events_of(new_client(), SASL_HEADER + mechanisms("ANONYMOUS") + outcome(0) + SASL_HEADER)
    assert isinstance(refused, Refused)
    assert "give a user and password in the URL" in refused.reason


def test_a_server_answers_a_foreign_protocol_with_its_own_header() -> None:
    server = Connection(container_id="you", server=True)
    events = list(events_of(server, b"GET / HTTP/1.1\r\n\r\n"))
    assert [type(event) for event in events] == [Refused]
    assert take_outgoing(server).startswith(SASL_HEADER)


def test_a_server_without_credentials_accepts_clients_without_sasl() -> None:
    server = Connection(container_id="you", server=True)
    assert [Opened("server"), Begun()] == list(events_of(server, AMQP_HEADER + open_frame() + begin_frame()))
    strict = Connection(container_id="you", server=True, credentials=Credentials("a", "b"))
    assert isinstance(next(iter(events_of(strict, AMQP_HEADER + open_frame()))), Refused)


def test_sasl_frames_come_before_sign_in_and_amqp_frames_after() -> None:
    with pytest.raises(PeerError, match="before sign-in"):
        list(events_of(new_client(), SASL_HEADER + open_frame()))
    with pytest.raises(PeerError, match="after sign-in"):
        list(events_of(new_client(), prologue(()) + mechanisms("PLAIN")))


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 7, 65_537, 2**32 - 1])
def test_frames_shorter_or_longer_than_agreed_are_refused_at_once(length: int) -> None:
    with pytest.raises(PeerError, match=str(length)):
        list(events_of(new_client(), prologue(()) + length.to_bytes(4, "big")))


def test_a_frame_of_the_agreed_size_is_accepted() -> None:
    script = Script()
    shape = Shape(wide_data=True)
    overhead = len(shape.transfer(0, 0, shape.message(b"")))
    script.message(shape, 0, 65_536 - overhead)
    assert len(script.octets) == 65_536
    assert receive(new_client(), prologue() + bytes(script.octets)) == script.expected


@pytest.mark.parametrize("doff", [0, 1, 3, 255])
def test_an_invalid_data_offset_is_refused(doff: int) -> None:
    octets = bytearray(HEARTBEAT)
    octets[4] = doff
    with pytest.raises(PeerError, match="begins at"):
        list(events_of(new_client(), prologue(()) + bytes(octets)))


def test_an_extended_header_is_skipped() -> None:
    plain = open_frame()
    extended = (len(plain) + 4).to_bytes(4, "big") + b"\x03" + plain[5:8] + b"\xff" * 4 + plain[8:]
    server = Connection(container_id="you", server=True)
    assert list(events_of(server, AMQP_HEADER + extended)) == [Opened("server")]


def test_a_fragmented_message_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crescendo.wire.amqp10.arrivals.MAX_MESSAGE_SIZE", 100_000)
    shape = Shape()
    data = shape.transfer(0, 0, bytes(60_000), more=True) + shape.next_fragment(0, bytes(60_000), more=True)
    with pytest.raises(PeerError, match="100000"):
        receive(new_client(), prologue() + data)


def test_a_transfer_without_a_delivery_id_is_refused() -> None:
    for data in (frame(0x14, uint(0), 1, b"\x00\x53\x75\xa0\x00"), Shape().next_fragment(0, b"x", more=True)):
        with pytest.raises(PeerError, match="delivery id"):
            receive(new_client(), prologue() + data)


@pytest.mark.parametrize("message", [b"\x00\x45\xa0\x00", b"\x00\xc1\x01\x00\x40", b"\x01", b"\x00\x53\x75\xa0\x05x"])
def test_a_malformed_message_is_the_peers_fault_or_empty(message: bytes) -> None:
    client = new_client()
    try:
        received = receive(client, prologue() + Shape().transfer(0, 0, message))
    except PeerError:
        return
    assert received == [("message", 0, 0, False, b"", False)]


def test_sections_may_be_named_by_symbol() -> None:
    data = b"\x00\xa3\x10amqp:data:binary\xa0\x03abc"
    assert receive(new_client(), prologue() + Shape().transfer(0, 0, data)) == [("message", 0, 0, False, b"abc", False)]


# -- windows and credit ----------------------------------------------------------------------------------------------


def test_nothing_may_be_sent_without_credit_or_beyond_the_window() -> None:
    client = client_with_sender(sender_prologue(window=5))
    assert client.sendable(0) == 0
    list(events_of(client, flow(0, 5, handle=0, credit=3)))
    assert client.sendable(0) == 3
    list(events_of(client, flow(0, 5, handle=0, credit=100)))
    assert client.sendable(0) == 5
    batch = TransferBatch(handle=0, body_length=32, settled=False)
    client.transfer(batch, 0, 4)
    assert client.sendable(0) == 1
    list(events_of(client, flow(2, 5, handle=0, delivery_count=2, credit=100)))  # it has received 2 of our 4
    assert client.sendable(0) == 3
    list(events_of(client, flow(4, 50, handle=0, delivery_count=4, credit=0)))  # credit revoked
    assert client.sendable(0) == 0


def test_credit_counts_messages_and_the_window_counts_frames() -> None:
    client = client_with_sender(sender_prologue(max_frame_size=512, window=10) + flow(0, 10, handle=0, credit=100))
    assert client.sendable(0, 100) == 10
    assert client.sendable(0, 1500) == 2  # four frames each
    client.transfer_one(0, bytes(1500), settled=False)
    transfers = sent_performatives(client, Transfer)
    assert len(transfers) <= 5
    assert 0 <= client.sendable(0, 1500) <= 1


def test_a_receiver_of_small_frames_gets_small_frames() -> None:
    client = client_with_sender(sender_prologue(max_frame_size=512) + flow(0, 1000, handle=0, credit=1))
    body = bytes(range(256)) * 8
    client.transfer_one(0, body, settled=True)
    octets = take_outgoing(client)
    server = Connection(container_id="you", server=True)
    link = b"".join((open_frame(), begin_frame(), frame(0x12, b"\xa1\x03out\x43\x42\x40\x40\x40\x40\x40\x40\x43", 10)))
    assert [type(event) for event in events_of(server, AMQP_HEADER + link)] == [Opened, Begun, Attached]
    sizes = []
    rest = octets
    while rest:
        sizes.append(int.from_bytes(rest[:4], "big"))
        rest = rest[sizes[-1] :]
    assert max(sizes) <= 512
    assert len(sizes) == 5
    [event] = events_of(server, octets)
    assert flattened(event) == [("message", 0, 0, True, body, False)]


def test_drained_credit_is_gone_on_both_sides() -> None:
    client = client_with_sender(sender_prologue() + flow(0, 1000, handle=0, credit=50))
    list(events_of(client, flow(0, 1000, handle=0, credit=50, drain=True)))
    assert client.sendable(0) == 0
    [answer] = sent_performatives(client, Flow)
    assert (answer.handle, answer.delivery_count, answer.link_credit, answer.drain) == (0, 50, 0, True)
    list(events_of(client, flow(0, 1000, handle=0, delivery_count=50, credit=7)))
    assert client.sendable(0) == 7


def test_an_echo_is_answered_for_the_session_and_for_both_kinds_of_link() -> None:
    client = client_with_sender(sender_prologue() + flow(0, 1000, handle=0, credit=50))
    client.transfer(TransferBatch(handle=0, body_length=32, settled=False), 0, 8)
    list(events_of(client, flow(0, 1000, handle=0, credit=50, echo=True)))
    [answer] = sent_performatives(client, Flow)
    assert (answer.next_outgoing_id, answer.handle, answer.delivery_count, answer.link_credit) == (8, 0, 8, 42)
    list(events_of(client, flow(0, 1000, echo=True)))
    [answer] = sent_performatives(client, Flow)
    assert answer.handle is None
    receiver = new_client()
    script = Script()
    for _ in range(3):
        script.message(Shape(), 1, 32)
    receive(receiver, prologue())
    receiver.grant(1, 10)
    receive(receiver, bytes(script.octets) + flow(0, 1000, handle=1, echo=True))
    granted, answer = sent_performatives(receiver, Flow)
    assert (granted.handle, granted.delivery_count, granted.link_credit) == (1, 0, 10)
    assert (answer.next_incoming_id, answer.handle, answer.delivery_count, answer.link_credit) == (3, 1, 3, 7)


def test_serial_numbers_wrap() -> None:
    client = client_with_sender(sender_prologue())
    link = client.links[0]
    link.delivery_count = 2**32 - 2
    client._session.next_outgoing_id = 2**32 - 2  # sending 2^32 messages would take too long
    list(events_of(client, flow(2**32 - 2, 100, handle=0, delivery_count=2**32 - 2, credit=5)))
    assert client.sendable(0) == 5
    client.transfer(TransferBatch(handle=0, body_length=32, settled=False), 0, 4)
    assert (link.delivery_count, client.sendable(0)) == (2, 1)


# -- links, outcomes and endings -------------------------------------------------------------------------------------


def test_a_refused_link_is_attached_without_a_terminus_then_detached() -> None:
    client = client_with_sender(prologue(()))
    refusal = attach("out", 0, receives=True, granted=False) + detach(0, error("amqp:not-found", "no such queue"))
    attached, detached = events_of(client, refusal)
    assert isinstance(attached, Attached)
    assert attached.attach.target is None
    assert detached == Detached(0, "amqp:not-found: no such queue")


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_our_own_refusal_reads_the_same_and_detaches_once(role: str) -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    exchange_bytes(client, server)
    if role == "sender":
        client.attach_sender("out", "nowhere", settled=False)
    else:
        client.attach_receiver("out", "nowhere", settled=False)
    [asked] = events_of(server, take_outgoing(client))
    assert isinstance(asked, Attached)
    server.refuse_attach(asked.handle, asked.attach, "amqp:not-found", "nowhere")
    answer = take_outgoing(server)
    attached, detached = events_of(client, answer)
    assert isinstance(attached, Attached)
    assert (attached.attach.target if role == "sender" else attached.attach.source) is None
    assert detached == Detached(0, "amqp:not-found: nowhere")
    list(events_of(server, detach(0)))
    assert sent_performatives(server, Detach) == []
    assert not server.links


def test_a_detached_link_is_answered_once_and_can_be_attached_again() -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    exchange_bytes(client, server)
    for _ in range(2):
        client.attach_sender("out", "q", settled=False)
        [asked] = events_of(server, take_outgoing(client))
        server.accept_attach(asked.handle, asked.attach)
        list(events_of(client, take_outgoing(server)))
        client.detach(0)
        assert list(events_of(server, take_outgoing(client))) == [Detached(0, "")]
        assert list(events_of(client, take_outgoing(server))) == [Detached(0, "")]
        assert not client.links
        assert not server.links


def test_unrequested_and_duplicate_links_are_refused() -> None:
    with pytest.raises(PeerError, match="unrequested"):
        list(events_of(new_client(), prologue(()) + attach("strange", 0, receives=True)))
    with pytest.raises(PeerError, match="attached already"):
        client_with_sender(sender_prologue() + attach("out", 1, receives=True))
    with pytest.raises(PeerError, match="not attached"):
        list(events_of(new_client(), prologue(()) + detach(7)))


def test_a_second_session_is_refused() -> None:
    with pytest.raises(PeerError, match="second session"):
        list(events_of(new_client(), prologue(()) + begin_frame()))


def test_ending_a_session_removes_its_links() -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    exchange_bytes(client, server)
    client.attach_sender("out", "q", settled=False)
    list(events_of(server, take_outgoing(client)))
    assert list(events_of(server, frame(0x17, b"", 0))) == [Ended("")]
    assert not server.links
    assert take_outgoing(server).endswith(b"\x00\x53\x17\x45")
    assert list(events_of(server, begin_frame())) == [Begun()]


def test_outcomes_name_their_range_and_state() -> None:
    client = client_with_sender(sender_prologue())
    first, second = events_of(client, disposition(3, 9) + disposition(4, 4, settled=False, state=0x26))
    assert isinstance(first, Settled)
    assert (first.role, first.ranges, first.settled) == (RECEIVER, [(3, 9)], True)
    assert isinstance(second, Settled)
    assert (second.settled, type(second.state)) == (False, Released)


def test_a_message_on_a_link_where_we_send_is_refused() -> None:
    with pytest.raises(PeerError, match="where we send"):
        client_with_sender(sender_prologue() + Shape().transfer(0, 0, Shape().message(b"x" * 32)))


def test_the_peers_close_reason_is_reported() -> None:
    client = new_client()
    events = list(events_of(client, prologue(()) + close(error("amqp:resource-limit-exceeded", "disk full"))))
    assert events[-1] == Closed("amqp:resource-limit-exceeded: disk full")
    assert client.closed
    assert list(events_of(client, HEARTBEAT)) == []


def test_our_close_reason_reaches_the_peer_and_is_answered() -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    exchange_bytes(client, server)
    client.close("amqp:internal-error", "we made a mistake")
    assert list(events_of(server, take_outgoing(client))) == [Closed("amqp:internal-error: we made a mistake")]
    assert list(events_of(client, take_outgoing(server))) == [Closed("")]
    assert not client.outgoing


def test_a_client_answers_detach_end_and_close() -> None:
    client = client_with_sender(sender_prologue())
    list(events_of(client, detach(0)))
    assert sent_performatives(client, Detach) == [Detach(handle=0, closed=True)]
    list(events_of(client, frame(0x17, b"", 0)))
    assert len(sent_performatives(client, End)) == 1
    list(events_of(client, close()))
    assert len(sent_performatives(client, Close)) == 1


def test_heartbeats_are_empty_frames_and_wait_for_sign_in() -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    server.heartbeat()
    assert not server.outgoing
    exchange_bytes(client, server)
    client.heartbeat()
    assert take_outgoing(client) == HEARTBEAT
    assert list(events_of(server, HEARTBEAT * 3)) == []


def test_an_idle_timeout_is_announced_only_when_it_is_set() -> None:
    for idle_ms, announced in ((0, None), (1500, 1500)):
        client = Connection(container_id="me", idle_time_out_ms=idle_ms)
        list(events_of(client, SASL_HEADER + mechanisms("ANONYMOUS") + outcome(0)))
        [sent_open] = sent_performatives(client, Open)
        assert sent_open.idle_time_out == announced


def test_messages_cross_in_both_directions() -> None:
    client, server = new_client(), Connection(container_id="you", server=True)
    exchange_bytes(client, server)
    out = client.attach_sender("out", "q", settled=False)
    back = client.attach_receiver("back", "q", settled=True)
    for event in events_of(server, take_outgoing(client)):
        assert isinstance(event, Attached)
        server.accept_attach(event.handle, event.attach)
        if event.attach.role is not RECEIVER:
            server.grant(event.handle, 10)
    list(events_of(client, take_outgoing(server)))
    client.grant(back, 10)
    client.transfer_one(out, b"there" * 8, settled=False)
    received = [entry for event in events_of(server, take_outgoing(client)) for entry in flattened(event)]
    assert ("message", out, 0, False, b"there" * 8, False) in received
    server.transfer_one(back, b"back" * 8, settled=True)
    server.settle(0, 0)
    message, settled = events_of(client, take_outgoing(server))
    assert isinstance(message, Deliveries)
    assert flattened(message) == [("message", back, 0, True, b"back" * 8, False)]
    assert isinstance(settled, Settled)


def test_a_topic_is_requested_by_capability() -> None:
    client = new_client()
    list(events_of(client, prologue(())))
    take_outgoing(client)
    client.attach_receiver("in", "news", settled=True, topic=True)
    client.attach_sender("out", "news", settled=True, topic=True)
    receiver, sender = sent_performatives(client, Attach)
    assert list(receiver.source.capabilities) == list(sender.target.capabilities) == ["topic"]


def test_a_client_cannot_exhaust_a_servers_memory_with_links() -> None:
    server = Connection(container_id="me", server=True)
    list(events_of(server, AMQP_HEADER + open_frame() + begin_frame() + attach("same", 0, receives=False)))
    with pytest.raises(PeerError):
        list(events_of(server, b"".join(attach("same", handle, receives=False) for handle in range(1, 1000))))
    assert len(server.links) == 1
