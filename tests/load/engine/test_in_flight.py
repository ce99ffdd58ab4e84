"""Is every message settled once, with its send time, in whatever order?"""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.engine.in_flight import FIRST_ATTEMPT, InFlight, SeqRange, SettledRange, SettledRanges

lengths = st.one_of(st.integers(1, 6), st.sampled_from([200, 256, 300, 1000]))
outcomes = st.one_of(
    st.tuples(st.integers(-3, 60), st.integers(0, 60)).map(lambda span: range(span[0], span[0] + span[1])),
    st.lists(st.integers(-3, 60), max_size=30).map(lambda numbers: np.array(numbers, np.int64)),
)


def send_times(found: SettledRange | SettledRanges | None) -> list[tuple[int, int]]:
    """Each message with its send time."""
    if found is None:
        return []
    if isinstance(found, SettledRange):
        return [(seq, found.sent_ns) for seq in range(found.first_seq, found.last_seq + 1)]
    rows = list(zip(found.first_seq.tolist(), found.last_seq.tolist(), found.sent_ns.tolist(), strict=True))
    every = [(seq, sent_ns) for first, last, sent_ns in rows for seq in range(first, last + 1)]
    assert len(every) == found.messages
    assert len(rows) > 1
    assert not any(before[1] + 1 == after[0] and before[2] == after[2] for before, after in itertools.pairwise(rows))
    return every


class DictionaryModel:
    """The same with a dictionary."""

    def __init__(self) -> None:
        self.in_flight = InFlight()
        self.sent: dict[int, int] = {}
        self.history: dict[int, tuple[int, int]] = {}
        self.next_seq = 0

    def send(self, seq_range: SeqRange, sent_ns: int) -> None:
        self.in_flight.add(seq_range, sent_ns)
        for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length):
            self.sent[seq] = sent_ns
            self.history.setdefault(seq, (0, sent_ns))
            self.history[seq] = (self.history[seq][0] + 1, self.history[seq][1])

    def settle(self, seqs: range | np.ndarray) -> None:
        expected = sorted((seq, self.sent.pop(seq)) for seq in set(map(int, seqs)) & self.sent.keys())
        assert send_times(self.in_flight.take(seqs)) == expected
        assert self.in_flight.count == len(self.sent)


@given(st.lists(st.tuples(lengths, st.integers(0, 3), st.booleans(), outcomes, st.booleans()), max_size=12))
def test_in_flight_matches_a_dictionary(steps: list[tuple[int, int, bool, range, bool]]) -> None:
    model = DictionaryModel()
    for now_ns, (length, skipped, alone, seqs, disconnects) in enumerate(steps):
        model.next_seq += skipped
        if alone:
            model.in_flight.add_one(model.next_seq, now_ns)
            model.sent[model.next_seq] = now_ns
            model.history[model.next_seq] = (FIRST_ATTEMPT, now_ns)
            model.next_seq += 1
        else:
            model.send(SeqRange(model.next_seq, length), now_ns)
            model.next_seq += length
        offset = max(model.next_seq - 60, 0)
        model.settle(range(seqs.start + offset, seqs.stop + offset) if isinstance(seqs, range) else seqs + offset)
        if disconnects:
            unsettled = model.in_flight.take_unsettled()
            assert model.in_flight.count == 0
            resent = [
                (seq, seq_range.attempt, seq_range.first_sent_ns)
                for seq_range in unsettled
                for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length)
            ]
            assert resent == [(seq, model.history[seq][0] + 1, model.history[seq][1]) for seq in sorted(model.sent)]
            model.sent.clear()
            for seq_range in unsettled:
                model.send(seq_range, now_ns)
    model.settle(range(model.next_seq))
    assert not model.sent


def test_a_message_that_is_never_settled_does_not_stop_the_others() -> None:
    in_flight = InFlight()
    for seq in range(100_000):
        in_flight.add_one(seq, seq)
        if seq:
            assert in_flight.take(range(seq, seq + 1)) == SettledRange(seq, seq, seq)
    assert in_flight.count == 1
    assert in_flight.take_unsettled() == [SeqRange(0, 1, 2, 0)]


def test_messages_settled_in_order_need_no_larger_ring() -> None:
    in_flight = InFlight()
    slots = len(in_flight._view)
    for first in range(0, 100_000, 100):
        in_flight.add(SeqRange(first, 100), first)
        in_flight.take(range(first, first + 100))
    assert len(in_flight._view) == slots
