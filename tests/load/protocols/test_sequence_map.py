"""Does the n-th position on a connection map to the message that was sent there?"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.protocols.sequence_map import SequenceMap

segments = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 8)), max_size=10)


@given(segments, st.integers(0, 90), st.integers(0, 90))
def test_positions_map_back_to_sequence_numbers(sent: list[tuple[int, int]], first: int, length: int) -> None:
    sequence_map = SequenceMap()
    oracle: list[int] = []
    for seq, count in sent:
        sequence_map.sent(seq, count)
        oracle += range(seq, seq + count)
    positions = (first, first + length)
    assert [seq for seqs in sequence_map.sequences([positions]) for seq in seqs] == oracle[first : first + length + 1]
    assert list(sequence_map.at(np.arange(first, first + length + 1))) == oracle[first : first + length + 1]
    latest = sequence_map.latest(*positions)
    assert latest is None or list(latest) == oracle[first : first + length + 1]
    assert sequence_map.count == len(oracle)
    assert [seq for seq in range(80) if sequence_map.includes(seq)] == [seq for seq in range(80) if seq in oracle]


def test_consecutive_messages_stay_one_range() -> None:
    sequence_map = SequenceMap()
    for first in range(0, 1000, 10):
        sequence_map.sent(first, 10)
    assert list(sequence_map.sequences([(0, 999)])) == [range(1000)]


@given(segments, st.lists(st.integers(-5, 90), max_size=30))
def test_positions_in_any_order_map_back_too(sent: list[tuple[int, int]], positions: list[int]) -> None:
    sequence_map = SequenceMap()
    oracle: list[int] = []
    for seq, count in sent:
        sequence_map.sent(seq, count)
        oracle += range(seq, seq + count)
    found = sequence_map.at(np.array(positions, np.int64))
    assert list(found) == [oracle[position] for position in positions if 0 <= position < len(oracle)]
