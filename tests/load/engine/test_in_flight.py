"""Does every message land once, with the time at which it left, in whatever order?"""

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


def landed(found: SettledRange | SettledRanges | None) -> list[tuple[int, int]]:
    """Each message with the time at which it left."""
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


class Sky:
    """The same by a dictionary."""

    def __init__(self) -> None:
        self.flights = InFlight()
        self.sent: dict[int, int] = {}
        self.history: dict[int, tuple[int, int]] = {}
        self.next_seq = 0

    def start_close(self, seq_range: SeqRange, sent_ns: int) -> None:
        self.flights.add(seq_range, sent_ns)
        for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length):
            self.sent[seq] = sent_ns
            self.history.setdefault(seq, (0, sent_ns))
            self.history[seq] = (self.history[seq][0] + 1, self.history[seq][1])

    def settle(self, seqs: range | np.ndarray) -> None:
        expected = sorted((seq, self.sent.pop(seq)) for seq in set(map(int, seqs)) & self.sent.keys())
        assert landed(self.flights.take(seqs)) == expected
        assert self.flights.count == len(self.sent)


@given(st.lists(st.tuples(lengths, st.integers(0, 3), st.booleans(), outcomes, st.booleans()), max_size=12))
def test_flights_are_what_a_dictionary_would_be(steps: list[tuple[int, int, bool, range, bool]]) -> None:
    sky = Sky()
    for now_ns, (length, skipped, alone, seqs, breaks) in enumerate(steps):
        sky.next_seq += skipped
        if alone:
            sky.flights.add_one(sky.next_seq, now_ns)
            sky.sent[sky.next_seq] = now_ns
            sky.history[sky.next_seq] = (FIRST_ATTEMPT, now_ns)
            sky.next_seq += 1
        else:
            sky.start_close(SeqRange(sky.next_seq, length), now_ns)
            sky.next_seq += length
        offset = max(sky.next_seq - 60, 0)
        sky.settle(range(seqs.start + offset, seqs.stop + offset) if isinstance(seqs, range) else seqs + offset)
        if breaks:
            again = sky.flights.take_unsettled()
            assert sky.flights.count == 0
            told = [
                (seq, seq_range.attempt, seq_range.first_sent_ns)
                for seq_range in again
                for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length)
            ]
            assert told == [(seq, sky.history[seq][0] + 1, sky.history[seq][1]) for seq in sorted(sky.sent)]
            sky.sent.clear()
            for seq_range in again:
                sky.start_close(seq_range, now_ns)
    sky.settle(range(sky.next_seq))
    assert not sky.sent


def test_one_that_never_lands_does_not_stop_the_others() -> None:
    flights = InFlight()
    for seq in range(100_000):
        flights.add_one(seq, seq)
        if seq:
            assert flights.take(range(seq, seq + 1)) == SettledRange(seq, seq, seq)
    assert flights.count == 1
    assert flights.take_unsettled() == [SeqRange(0, 1, 2, 0)]


def test_what_leaves_and_lands_in_order_takes_no_more_room() -> None:
    flights = InFlight()
    slots = len(flights._view)
    for first in range(0, 100_000, 100):
        flights.add(SeqRange(first, 100), first)
        flights.take(range(first, first + 100))
    assert len(flights._view) == slots
