"""Do MLMQ's frames survive any chunking, and can a broken peer do more than end its own connection?

The layout is built here a second time, by hand, with `struct` and MessagePack of plain lists; both directions of the
codec are checked against it.
"""

import random
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.mlmq.codec import MAX_FRAME_BYTES, Codec, Frame, FrameError, Times, Unreadable
from crescendo.wire.mlmq.operations import (
    MAX_MESSAGES_PER_ANSWER,
    REQUESTS,
    TYPES,
    Acknowledge,
    Delivery,
    Dequeue,
    Message,
    Messages,
    Once,
    Order,
    Query,
    Refusal,
    Refused,
    Register,
    Send,
    Sent,
    Settled,
)

TIMES = Times(1, 2, 3, 4, 5, 2**64 - 1)
ids = st.integers(1, 2**63 - 1)
onces = st.builds(Once, ids, st.integers(0, 63), ids)
queries = st.builds(Query, ids, st.none() | ids, st.none() | ids, st.sampled_from(Order))
messages = st.builds(
    Message,
    ids,
    ids,
    ids,
    st.none() | ids,
    st.integers(1, 10),
    st.none() | ids,
    st.integers(0, 2**62),
    st.just(1),
    st.binary(max_size=40),
)
requests = st.one_of(
    st.builds(Register, st.text("abcé漢 ", min_size=1, max_size=50)),
    st.builds(
        Send,
        ids,
        st.binary(max_size=200),
        st.lists(ids, min_size=1, max_size=4, unique=True).map(tuple),
        st.integers(1, 10),
        st.none() | ids,
        st.none() | ids,
        once=st.none() | onces,
    ),
    st.builds(Dequeue, ids, queries, st.integers(1, 100), st.integers(0, 1000), once=st.none() | onces),
    st.builds(Acknowledge, ids, st.lists(st.builds(Delivery, ids, ids), min_size=1, max_size=3).map(tuple)),
)
answers = st.one_of(
    st.builds(Messages, st.lists(messages, max_size=3).map(tuple)),
    st.builds(Sent, st.lists(ids, max_size=3).map(tuple), st.none() | ids),
    st.builds(Refused, st.sampled_from(Refusal), st.text(max_size=20)),
    st.just(Settled()),
)
frames = st.one_of(
    st.builds(Frame, st.integers(0, 2**64 - 1), requests, st.booleans(), st.none()),
    st.builds(Frame, st.integers(0, 2**64 - 1), answers, st.just(False), st.none() | st.just(TIMES)),
)


def encoded(frame: Frame) -> bytes:
    return Codec(TYPES).encode(frame.request, frame.value, wants_times=frame.wants_times, times=frame.times)


def by_hand(number: int, body: bytes, request: int = 7, version: int = 1, flags: int = 0) -> bytes:
    return struct.pack(">iBBHQ", 12 + len(body), version, flags, number, request) + body


def all_frames(codec: Codec) -> list[Frame | Unreadable]:
    return list(iter(codec.next_frame, None))


def read(stream: bytes, cuts: list[int]) -> list[Frame | Unreadable]:
    codec, found = Codec(TYPES), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        codec.receive(stream[start:end])
        found += all_frames(codec)
    assert codec.buffered_bytes == 0
    return found


def test_the_layout_is_the_documented_one() -> None:
    body = msgspec.msgpack.encode([3, b"hi", [4, 5], 9, None, None, False, [6, 0, 1], 0, None])
    frame = by_hand(7, body, request=2**64 - 1, flags=1)
    value = Send(3, b"hi", (4, 5), 9, once=Once(6, 0, 1))
    assert Codec(TYPES).encode(2**64 - 1, value, wants_times=True) == frame
    assert read(frame, []) == [Frame(2**64 - 1, value, True)]
    timed = struct.pack(">6Q", *TIMES) + msgspec.msgpack.encode([9, "no"])
    assert Codec(TYPES).encode(7, Refused(Refusal.OVERLOADED, "no"), times=TIMES) == by_hand(72, timed, flags=1)
    assert read(by_hand(72, timed, flags=1), []) == [Frame(7, Refused(Refusal.OVERLOADED, "no"), False, TIMES)]


@given(st.data(), st.lists(frames, min_size=1, max_size=6))
def test_any_chunking_yields_the_same_frames(data: st.DataObject, sent: list[Frame]) -> None:
    stream = b"".join(map(encoded, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    assert read(stream, cuts) == sent


def test_a_stream_may_be_cut_at_every_byte() -> None:
    sent = [
        Frame(1, Register("a"), True),
        Frame(2, Send(1, b"content", (2, 3), once=Once(1, 2, 3))),
        Frame(3, Messages((Message(1, 2, 3, None, 5, None, 6, 1, b"x" * 50),)), times=TIMES),
    ]
    stream = b"".join(map(encoded, sent))
    for cut in range(len(stream) + 1):
        assert read(stream, [cut]) == sent
    assert read(stream, list(range(len(stream)))) == sent


def test_the_largest_answer_fits_its_frame() -> None:
    full = Message(2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, 10, 2**63 - 1, 2**62, 2**31 - 1, b"x" * 2000)
    largest = Frame(2**64 - 1, Messages((full,) * MAX_MESSAGES_PER_ANSWER), times=TIMES)
    assert read(encoded(largest), []) == [largest]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 11])
def test_a_length_below_the_header_ends_the_connection(length: int) -> None:
    codec = Codec(TYPES)
    codec.receive(struct.pack(">i", length))
    with pytest.raises(FrameError, match=f"announces {length} bytes") as caught:
        codec.next_frame()
    assert not caught.value.too_large
    codec.receive(encoded(Frame(1, Register("a"))))
    with pytest.raises(FrameError):  # nothing after it is trusted
        codec.next_frame()


def test_an_oversized_frame_is_refused_before_its_bytes_arrive() -> None:
    codec = Codec(TYPES)
    codec.receive(struct.pack(">iBBHQ", MAX_FRAME_BYTES + 1, 1, 0, 7, 99))
    with pytest.raises(FrameError) as caught:
        codec.next_frame()
    assert (caught.value.too_large, caught.value.request) == (True, 99)
    assert codec.buffered_bytes == 0
    small = Codec(TYPES, max_frame_bytes=100)
    with pytest.raises(ValueError, match="at most 100"):
        small.encode(1, Send(1, b"x" * 100, (1,)))


def test_another_version_is_refused_with_its_number() -> None:
    codec = Codec(TYPES)
    codec.receive(by_hand(1, b"\x91\xa1a", version=2))
    with pytest.raises(FrameError, match="version 2"):
        codec.next_frame()


@pytest.mark.parametrize(
    ("frame", "unknown"),
    [
        (by_hand(63, b""), True),
        (by_hand(65535, b"\x90"), True),
        (by_hand(1, b""), False),
        (by_hand(1, b"\x91"), False),
        (by_hand(1, b"\x91\xa1a\x00"), False),  # trailing bytes
        (by_hand(1, b"\x91\xa2\xff\xfe"), False),  # not UTF-8
        (by_hand(1, b"\x91\x01"), False),
        (by_hand(1, b"\x91\xa1a", flags=2), False),
        (by_hand(72, b"\x00" * 47, flags=1), False),  # too short for its times
        (by_hand(7, b"\x91" * 5000), False),  # nested without end
        (by_hand(7, b"\xdd\xff\xff\xff\xff"), False),  # an array of 4 billion, in 5 bytes
        (by_hand(7, b"\xc6\xff\xff\xff\xff"), False),
    ],
)
def test_the_stream_continues_after_an_unreadable_frame(frame: bytes, unknown: bool) -> None:
    good = Frame(8, Register("a"))
    found = read(frame + encoded(good), [])
    assert isinstance(found[0], Unreadable)
    assert (found[0].request, found[0].unknown) == (7, unknown)
    assert found[0].text
    assert found[1:] == [good]


def test_our_own_mistakes_are_not_sent() -> None:
    codec = Codec(REQUESTS)
    with pytest.raises(ValueError, match="no type number"):
        codec.encode(1, Refused(Refusal.INVALID, ""))
    with pytest.raises(ValueError, match="64 bits"):
        codec.encode(2**64, Register("a"))
    with pytest.raises(ValueError, match="asks for times"):
        codec.encode(1, Register("a"), times=TIMES)
    with pytest.raises(ValueError, match="asks for times"):
        Codec(TYPES).encode(1, Settled(), wants_times=True)


@pytest.mark.parametrize(("seed", "mutations"), [(1, 2_000), pytest.param(2, 300_000, marks=pytest.mark.soak)])
def test_a_damaged_stream_only_ends_its_connection(seed: int, mutations: int) -> None:
    """Every outcome is a frame, an Unreadable or a FrameError, and nothing is kept beyond what was received."""
    dice = random.Random(seed)
    stream = b"".join(
        encoded(Frame(n, value))
        for n, value in enumerate(
            [Register("abc"), Send(1, b"x" * 30, (1, 2)), Dequeue(1, Query(2)), Sent((1, 2), None)]
        )
    )
    outcomes = {"frame": 0, "unreadable": 0, "broken": 0, "waiting": 0}
    for _ in range(mutations):
        octets = bytearray(stream)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(octets))
            match dice.randrange(3):
                case 0:
                    octets[at] = dice.randrange(256)
                case 1:
                    del octets[at : at + dice.randint(1, 8)]
                case _:
                    octets[at:at] = dice.randbytes(dice.randint(1, 8))
        codec = Codec(TYPES)
        try:
            for start in range(0, len(octets), 17):
                codec.receive(octets[start : start + 17])
                for found in all_frames(codec):
                    outcomes["frame" if isinstance(found, Frame) else "unreadable"] += 1
        except FrameError:
            outcomes["broken"] += 1
        outcomes["waiting"] += bool(codec.buffered_bytes)
        assert codec.buffered_bytes <= len(octets)
    assert all(outcomes.values()), f"the damage did not reach every outcome: {outcomes}"
