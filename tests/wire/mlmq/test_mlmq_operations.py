"""Are invalid requests refused before they reach the storage?"""

import msgspec
import pytest

from crescendo.wire.mlmq import operations as ops
from crescendo.wire.mlmq.operations import (
    ANSWERS,
    REQUESTS,
    CreateQueue,
    Dequeue,
    LookupQueue,
    Message,
    Once,
    Query,
    Refusal,
    Register,
    Send,
    refusal_of,
)


def round_trip(value: object, kind: type) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)


@pytest.mark.parametrize("name", ["", "x" * 51, "a\0b", "a\nb", "\x7f"])
def test_a_name_that_cannot_be_stored_or_shown_is_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        round_trip([name], Register)
    with pytest.raises(msgspec.ValidationError):
        round_trip([1, name], CreateQueue)


@pytest.mark.parametrize("name", ["a", "x" * 50, "Zürich, 3. Stock", "名前"])
def test_other_names_are_valid(name: str) -> None:
    assert round_trip([name], Register) == Register(name)


@pytest.mark.parametrize(
    "fields",
    [
        [0, b"", [1]],  # no client has number 0
        [1, b"", [-1]],
        [1, b"", [2**63]],  # more than the database can count
        [1, b"", [1], 0],
        [1, b"", [1], 11],
        [1, b"", []],  # no queue and no receiver
        [1, b"", [2, 2]],
        [1, b"", [2], 5, None, 7, True],  # a context and a new one
        [1, b"", list(range(1, 102))],
        [1, b"", [2], 5, None, None, False, [1, 64, 1]],  # no such slot
        [1, "text", [2]],
    ],
)
def test_an_invalid_send_is_refused(fields: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        round_trip(fields, Send)


def test_a_dequeue_needs_a_filter_and_must_stay_within_limits() -> None:
    assert round_trip([1, [2]], Dequeue) == Dequeue(1, Query(2))
    for fields in (
        [1, []],
        [1, [None, None, None, 1]],
        [1, [2], 0],
        [1, [2], 101],
        [1, [2], 1, 3_600_001],
        [1, [2], 1, 0, 60_001],
    ):
        with pytest.raises(msgspec.ValidationError):
            round_trip(fields, Dequeue)
    with pytest.raises(ValueError, match="name a queue"):
        Query()
    with pytest.raises(ValueError, match="either"):
        LookupQueue("a", 1)


def test_content_has_its_own_limit_and_reason() -> None:
    assert refusal_of(Send(1, b"x" * 2000, (1,))) is None
    refused = refusal_of(Send(1, b"x" * 2001, (1,)))
    assert refused is not None
    assert refused.reason is Refusal.TOO_LARGE
    assert "2001" in refused.text


def test_every_type_has_exactly_one_number() -> None:
    kinds = [*REQUESTS.values(), *ANSWERS.values()]
    assert len(set(kinds)) == len(kinds)
    assert max(REQUESTS) < 64 <= min(ANSWERS)
    assert set(REQUESTS.values()) == set(ops.Request.__args__)
    assert set(ANSWERS.values()) == set(ops.Answer.__args__)


def test_fields_added_later_do_not_break_an_older_peer() -> None:
    assert round_trip(["a", "from the future"], Register) == Register("a")
    assert round_trip([1, 2, 3, "more"], Once) == Once(1, 2, 3)


def test_only_a_second_delivery_is_a_redelivery() -> None:
    def message(delivery: int) -> Message:
        return Message(1, 1, 1, None, 5, None, 0, delivery, b"")

    assert [message(n).redelivered for n in (0, 1, 2, 3)] == [False, False, True, True]
