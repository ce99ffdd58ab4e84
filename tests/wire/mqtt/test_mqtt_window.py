"""Does an acknowledgement always find its message?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.packet_types import PacketType
from crescendo.wire.mqtt.window import IDS, Window, ids_of


def flat(ranges: list[tuple[int, int]]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


@settings(max_examples=60)
@given(data=st.data(), start=st.sampled_from([0, 100, IDS - 5, 3 * IDS - 7]), limit=st.sampled_from([1, 7, 50, IDS]))
def test_answers_in_any_order_find_their_numbers(data: st.DataObject, start: int, limit: int) -> None:
    window = Window()
    while window.next_number < start:  # wrap around first
        count = min(IDS, start - window.next_number)
        first = window.take(count, PacketType.PUBACK)
        window.answered(ids_of(first, count), PacketType.PUBACK)
    window.limit = limit
    open_numbers: dict[int, int] = {}  # the model: identifier to number, kept one by one
    following = start
    for _ in range(data.draw(st.integers(1, 12))):
        count = min(window.room, data.draw(st.integers(0, 30)))
        first = window.take(count, PacketType.PUBACK)
        assert first == following
        for number in range(first, first + count):
            packet_id = number % IDS + 1
            assert packet_id not in open_numbers
            open_numbers[packet_id] = number
        following += count
        assert window.in_flight == len(open_numbers) <= limit
        answers = data.draw(st.lists(st.sampled_from(sorted(open_numbers)), unique=True)) if open_numbers else []
        if answers:
            expected = [open_numbers.pop(packet_id) for packet_id in answers]
            if data.draw(st.booleans()):
                assert flat(window.answered(np.array(answers, np.uint16), PacketType.PUBACK)) == expected
            else:
                assert [window.answered_one(packet_id, PacketType.PUBACK) for packet_id in answers] == expected


def test_no_identifier_is_reused_while_in_flight() -> None:
    window = Window()
    window.take(IDS, PacketType.PUBACK)
    assert window.room == 0
    window.answered(ids_of(1, IDS - 1), PacketType.PUBACK)  # all but the first
    assert window.in_flight == 1
    assert window.room == 0  # the next identifier is still in flight
    with pytest.raises(ValueError, match="are free"):
        window.take(1, PacketType.PUBACK)
    window.answered_one(1, PacketType.PUBACK)
    assert window.room == IDS


@pytest.mark.parametrize("ids", [[4], [2, 4], [1, 1], [2, 1, 2], [0]])
def test_an_unexpected_answer_is_the_peers_fault(ids: list[int]) -> None:
    window = Window()
    window.take(3, PacketType.PUBACK)
    with pytest.raises(PeerError):
        window.answered(np.array(ids, np.uint16), PacketType.PUBACK)


def test_an_answer_of_the_wrong_kind_is_the_peers_fault() -> None:
    window = Window()
    window.take(3, PacketType.PUBREC)
    with pytest.raises(PeerError, match="PUBACK for packet 2"):
        window.answered_one(2, PacketType.PUBACK)
    with pytest.raises(PeerError, match="PUBCOMP for packet 1"):
        window.answered(ids_of(0, 3), PacketType.PUBCOMP)


def test_consecutive_numbers_become_one_range() -> None:
    window = Window()
    window.take(10, PacketType.PUBACK)
    ids = np.array([1, 2, 3, 7, 8, 5], np.uint16)
    assert window.answered(ids, PacketType.PUBACK) == [(0, 2), (6, 7), (4, 4)]
