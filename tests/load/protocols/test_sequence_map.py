"""Is the n-th message on a connection the one that was sent there?"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.protocols.sequence_map import SequenceMap

stretches = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 8)), max_size=10)


@given(stretches, st.integers(0, 90), st.integers(0, 90))
def test_places_lead_back_to_sequence_numbers(sent: list[tuple[int, int]], first: int, length: int) -> None:
    numbering = SequenceMap()
    oracle: list[int] = []
    for seq, count in sent:
        numbering.sent(seq, count)
        oracle += range(seq, seq + count)
    stretch = (first, first + length)
    assert [seq for seqs in numbering.sequences([stretch]) for seq in seqs] == oracle[first : first + length + 1]
    assert list(numbering.at(np.arange(first, first + length + 1))) == oracle[first : first + length + 1]
    latest = numbering.latest(*stretch)
    assert latest is None or list(latest) == oracle[first : first + length + 1]
    assert numbering.count == len(oracle)
    assert [seq for seq in range(80) if numbering.includes(seq)] == [seq for seq in range(80) if seq in oracle]


def test_what_counts_up_stays_one_stretch() -> None:
    numbering = SequenceMap()
    for first in range(0, 1000, 10):
        numbering.sent(first, 10)
    assert list(numbering.sequences([(0, 999)])) == [range(1000)]


@given(stretches, st.lists(st.integers(-5, 90), max_size=30))
def test_places_in_any_order_lead_back_as_well(sent: list[tuple[int, int]], places: list[int]) -> None:
    numbering = SequenceMap()
    oracle: list[int] = []
    for seq, count in sent:
        numbering.sent(seq, count)
        oracle += range(seq, seq + count)
    found = numbering.at(np.array(places, np.int64))
    assert list(found) == [oracle[place] for place in places if 0 <= place < len(oracle)]
