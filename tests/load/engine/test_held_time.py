"""Is the delay of a message divided exactly, whatever the order of holds, sends and stalls?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.engine.held_time import MAX_POINTS, HeldTime

times = st.integers(0, 50)


def overlap(holds: list[tuple[int, int]], begun: int, ended: int) -> int:
    return sum(max(min(end, ended) - max(begin, begun), 0) for begin, end in holds)


@given(st.integers(0, 10**18), st.lists(st.tuples(times, times), max_size=30), st.lists(st.tuples(times, times)))
def test_held_time_is_the_overlap_with_the_holds(
    origin: int, steps: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    held, now = HeldTime(), origin
    holds = []
    for gap, length in steps:
        begin = now + gap
        now = begin + length
        held.begin(begin)
        held.begin(begin + 3)  # found again: the hold has begun already
        held.end(now)
        holds.append((begin, now))
    assert held.total_ns == sum(end - begin for begin, end in holds)
    begins = sorted(origin + 40 * gap for gap, _ in spans)
    ends = [max(begin + 7 * length, now) for begin, (_, length) in zip(begins, spans, strict=True)]
    expected = [overlap(holds, begin, end) for begin, end in zip(begins, ends, strict=True)]
    assert [held.within_one(begin, end) for begin, end in zip(begins, ends, strict=True)] == expected
    if spans:
        assert held.within(np.array(begins), np.array(ends)).tolist() == expected


def test_a_hold_that_ended_before_it_was_found_is_none() -> None:
    held = HeldTime()
    held.begin(100)
    held.end(90)
    assert (held.total_ns, held.since_ns, held.within_one(0, 200)) == (0, None, 0)


def test_a_hold_that_lasts_is_counted_up_to_now() -> None:
    held = HeldTime()
    held.begin(100)
    held.end(150)
    held.begin(200)
    assert held.elapsed_ns(230) == 80


@pytest.mark.parametrize("step", [1, 1000])
def test_any_number_of_holds_needs_the_same_memory_and_stays_nearly_exact(step: int) -> None:
    """While one message waits, more holds pass than are kept. No part of its delay is counted twice."""
    held, count = HeldTime(), 3 * MAX_POINTS
    for index in range(count):
        held.begin(index * 10 * step)
        held.end(index * 10 * step + 4 * step)
    end = count * 10 * step
    assert held.within_one(0, end) == 4 * step * count
    middle = held.within_one(end // 2, end)
    assert abs(middle - 2 * step * count) <= 10 * step * 2 ** (count * 2 // MAX_POINTS)
    late = held.within(np.arange(end - 100 * step, end, 10 * step), end)
    assert late.tolist() == [4 * step * left for left in range(10, 0, -1)]


def test_holds_before_the_oldest_message_are_forgotten() -> None:
    held = HeldTime(max_points=8)
    for index in range(1000):
        begin = index * 10
        held.begin(begin)
        held.end(begin + 4)
        assert held.within(np.array([begin - 10, begin]), begin + 6).tolist() == [8 if index else 4, 4]


@given(st.lists(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=20), max_size=5))
def test_holds_that_are_added_together_count_as_if_added_one_by_one(batches: list[list[tuple[int, int]]]) -> None:
    single, many, now = HeldTime(), HeldTime(), 10**15
    starts = [now]
    for batch in batches:
        begins, ends = [], []
        for gap, length in batch:
            begins.append(now + gap)
            now += gap + length
            ends.append(now)
            single.begin(begins[-1])
            single.end(now)
        many.add_many(np.array(begins), np.array(ends))
        starts += begins
    assert (many.total_ns, many.ended_ns) == (single.total_ns, single.ended_ns)
    begun, ended = np.array(starts), np.full(len(starts), now + 5)
    assert many.within(begun, ended).tolist() == single.within(begun, ended).tolist()


def test_more_holds_than_fit_keep_their_sum_and_the_latest_exactly() -> None:
    held, begins = HeldTime(64), np.arange(0, 20_000, 10)
    for batch in (begins[:500], begins[500:510], begins[510:]):
        held.add_many(batch, batch + 3)
    assert held.total_ns == 3 * len(begins)
    assert held.within(np.array([19_900]), 20_000).tolist() == [30]
