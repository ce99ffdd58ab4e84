"""Notes survive the wire, and nothing else is mistaken for one."""

import contextlib
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.control.conductor.commands import SendRequest
from crescendo.control.conductor.events import (
    PeerAnswered,
    PeerFailed,
    PeerFinished,
    PeerJoined,
    PeerLost,
    PeerReported,
)
from crescendo.control.conductor.translation import event_from_note, note_for
from crescendo.control.notes import (
    MAX_NOTE_BYTES,
    Command,
    Failure,
    FailureReport,
    Hello,
    Identity,
    Note,
    NoteKind,
    NotUnderstoodError,
    Start,
    Statistics,
    decode_note,
    encode_note,
)
from crescendo.control.topics import Topics, scope_of_topic
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.peer_statistics import PeerStatistics

SENDER = Identity("sender-0", "sender", "host", 42)
STATISTICS = Statistics(5, {"queue://a": 3}, 3, 2.5, 900, 0.5, PeerStatistics(busy_share=0.25))

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NOTES = st.builds(
    Note,
    st.sampled_from(NoteKind),
    st.sampled_from(Command),
    st.integers(0, 2**63 - 1),
    st.builds(Identity, *[st.text(max_size=60)] * 3, st.integers(0, 2**31), st.integers(0, 2**63 - 1)),
    st.dictionaries(st.text(), PLAIN, max_size=4),
    st.integers(0, 2**63 - 1),
)
COUNTERS = st.integers(0, 2**63 - 1)


@settings(max_examples=40)
@given(NOTES, COUNTERS)
def test_a_note_reads_back_as_it_was_written(note: Note, counter: int) -> None:
    assert decode_note(encode_note(note, counter)) == (note, counter)


def test_the_wire_holds_the_numbers_of_the_maestro_protocol() -> None:
    note = Note(NoteKind.REQUEST, Command.START_SENDER, 7, SENDER, {"t0_ns": 1}, to=9)
    # Written out by hand: an array of eight, fixints, an array of five with three strings, a map.
    expected = b"\x98\x02\x00\x02\x07\x05\x09\x95\xa8sender-0\xa6sender\xa4host\x2a\x00\x81\xa5t0_ns\x01"
    assert encode_note(note, 5) == expected
    numbers = {"STOP_RECEIVER": 1, "SET": 7, "HALT": 9, "OK": 11, "NOTIFY_FAIL": 15, "DRAIN": 41, "GROUP_JOIN": 50}
    assert {name: Command[name].value for name in numbers} == numbers


@given(st.binary(max_size=200))
def test_garbage_is_the_other_sides_fault(content: bytes) -> None:
    try:
        note, counter = decode_note(content)
    except PeerError:
        return
    assert decode_note(encode_note(note, counter)) == (note, counter)


@given(NOTES, st.data())
def test_a_damaged_note_never_raises_anything_but_a_peer_error(note: Note, data: st.DataObject) -> None:
    content = bytearray(encode_note(note))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(PeerError):
        event_from_note(decode_note(bytes(content[:cut]))[0], 1)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(b"\x98\x02\x00\x63", "99"), (b"\x98\x02\x09\x07", "9"), (b"\x98\x03\x00\x07", "version 3 is not spoken")],
    ids=["command", "kind", "version"],
)
def test_a_note_that_is_not_understood_says_whom_to_tell(frame: bytes, reason: str) -> None:
    content = encode_note(Note(NoteKind.REQUEST, Command.SET, 21, SENDER, {}), 8)
    assert content.startswith(b"\x98\x02\x00\x07")
    with pytest.raises(NotUnderstoodError, match=reason) as caught:
        decode_note(frame + content[4:])
    assert (caught.value.sender, caught.value.correlation, caught.value.counter) == (SENDER, 21, 8)


def test_a_note_of_more_than_a_mebibyte_is_rejected_on_both_sides() -> None:
    with pytest.raises(PeerError, match="1048577 bytes"):
        decode_note(bytes(MAX_NOTE_BYTES + 1))
    with pytest.raises(ConfigError, match="more peers"):
        encode_note(Note(NoteKind.REQUEST, Command.SET, 1, SENDER, {"blob": bytes(MAX_NOTE_BYTES)}))


def test_deep_nesting_is_rejected_and_not_fatal() -> None:
    head = encode_note(Note(NoteKind.REQUEST, Command.SET, 1, SENDER, {}))[:-1]
    with pytest.raises(PeerError):
        decode_note(head + b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize(
    "payload", [STATISTICS, Statistics(1), Failure("no", "peer"), Start(9), Hello(-4, "1.2"),
                FailureReport(Failure("x", "lost"), STATISTICS)], ids=lambda payload: type(payload).__name__,
)  # fmt: skip
def test_a_payload_round_trips_through_plain_values(payload: Statistics) -> None:
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(payload.to_payload()))
    assert type(payload).from_payload(wire) == payload


def test_a_payload_that_does_not_fit_is_a_peer_error() -> None:
    with pytest.raises(PeerError, match="Failure"):
        Failure.from_payload({"reason": "x", "fault": "unknown"})
    with pytest.raises(PeerError, match="t0_ns"):
        Start.from_payload({})


def test_a_newer_peer_may_send_unknown_keys() -> None:
    assert Start.from_payload({"t0_ns": 1, "colour": "blue"}) == Start(1)


def notification(command: Command, payload: dict[str, object]) -> Note:
    return Note(NoteKind.NOTIFICATION, command, 0, SENDER, payload)


def test_every_note_of_a_peer_has_its_event() -> None:
    failure, hello = Failure("no", "peer"), Hello(1, "1")
    ok = Note(NoteKind.RESPONSE, Command.OK, 3, SENDER, {})
    no = Note(NoteKind.RESPONSE, Command.PROTOCOL_ERROR, 4, SENDER, failure.to_payload())
    meanings = {
        Command.GROUP_JOIN: (hello, PeerJoined("sender-0", SENDER, hello, 8)),
        Command.STATS: (STATISTICS, PeerReported("sender-0", STATISTICS, 8)),
        Command.NOTIFY_SUCCESS: (STATISTICS, PeerFinished("sender-0", STATISTICS, 8)),
        Command.NOTIFY_FAIL: (FailureReport(failure, STATISTICS), PeerFailed("sender-0", failure, STATISTICS, 8)),
        Command.ABNORMAL_DISCONNECT: (Failure("cut", "lost"), PeerLost("sender-0", "cut", 8)),
    }
    for command, (payload, event) in meanings.items():
        assert event_from_note(notification(command, payload.to_payload()), 8) == event
    assert event_from_note(ok, 8) == PeerAnswered("sender-0", 3, Command.OK, True, None, None, 8)
    assert event_from_note(no, 8) == PeerAnswered("sender-0", 4, Command.PROTOCOL_ERROR, False, failure, None, 8)


def test_a_note_without_meaning_to_the_conductor_is_not_an_event() -> None:
    assert event_from_note(notification(Command.SET, {}), 1) is None
    assert event_from_note(notification(Command.STATS, {"t_ns": "noon"}), 1) is None
    assert event_from_note(Note(NoteKind.REQUEST, Command.STATS, 1, SENDER, STATISTICS.to_payload()), 1) is None


def test_a_request_becomes_a_note_from_the_conductor() -> None:
    conductor = Identity("conductor", "conductor", "host", 1)
    note = note_for(SendRequest("sender-0", Command.SET, 5, {"a": 1}), conductor)
    assert note == Note(NoteKind.REQUEST, Command.SET, 5, conductor, {"a": 1})


def test_topics_are_those_of_the_maestro_protocol_with_the_run() -> None:
    topics = Topics("0f")
    assert topics.peer("sender-0") == "/mpt/0f/peer/by-id/sender-0"
    assert (topics.role("sender"), topics.group("g")) == ("/mpt/0f/peer/by-role/sender", "/mpt/0f/peer/by-group/g")
    assert (topics.peers, topics.replies, topics.notifications) == (
        "/mpt/0f/peer", "/mpt/0f/maestro", "/mpt/0f/notifications",
    )  # fmt: skip
    assert {scope_of_topic(topic) for topic in (topics.peers, topics.replies, topics.peer("x"))} == {"0f"}
    assert {scope_of_topic(topic) for topic in ("", "/mpt/peer", "mpt/0f/peer", "/x/0f/peer", "/mpt")} == {""}


@pytest.mark.parametrize("peer_id", ["", "a/b", "#", "a+", "x" * 201])
def test_an_id_that_would_change_the_topic_is_rejected(peer_id: str) -> None:
    with pytest.raises(ConfigError):
        Topics("0f").peer(peer_id)


def test_large_times_stay_exact() -> None:
    t0_ns = 2**61 + 1
    content = encode_note(Note(NoteKind.REQUEST, Command.START_SENDER, 1, SENDER, Start(t0_ns).to_payload()))
    assert struct.pack(">Q", t0_ns) in content
    assert Start.from_payload(decode_note(content)[0].payload).t0_ns == t0_ns
