"""Shrinking finds the smallest cause, and asks about no selection twice."""

import itertools
import random

import pytest

from crescendo.model.random_faults import ACTIONS, MAX_FAULTS, random_timeline
from crescendo.model.shrinking import shrink


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
def test_what_remains_is_the_cause_and_nothing_else(size: int) -> None:
    draw = random.Random(size)
    for needed in range(1, min(size, 4) + 1):
        cause = set(draw.sample(range(size), needed))
        asked: list[tuple[int, ...]] = []

        def fails(chosen: list[int], cause: set[int] = cause, asked: list[tuple[int, ...]] = asked) -> bool:
            asked.append(tuple(chosen))
            return cause <= set(chosen)

        assert shrink(range(size), fails) == sorted(cause)
        assert len(asked) == len(set(asked))


def test_of_two_independent_causes_one_remains() -> None:
    assert shrink(["a", "b", "c", "d"], lambda chosen: "b" in chosen or "d" in chosen) == ["b"]
    both = shrink(["a", "b", "c", "d"], lambda chosen: {"a", "b"} <= set(chosen) or {"c", "d"} <= set(chosen))
    assert both in (["a", "b"], ["c", "d"])


def test_a_failure_that_does_not_repeat_leaves_everything() -> None:
    assert shrink([1, 2, 3], lambda chosen: False) == [1, 2, 3]


def test_the_same_seed_gives_the_same_faults_and_none_overlap() -> None:
    seen = set()
    for seed in range(200):
        faults = random_timeline(seed, ACTIONS, 10 * 10**9)
        assert faults == random_timeline(seed, ACTIONS, 10 * 10**9)
        assert 1 <= len(faults) <= MAX_FAULTS
        ends = [fault.at.offset + (fault.lasts or 0) for fault in faults]
        begins = [fault.at.offset for fault in faults]
        assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False))
        assert max(ends) <= 10 * 10**9
        seen.add(tuple((fault.at, fault.do) for fault in faults))
    assert len(seen) > 190
    assert {do for do in itertools.chain(*([do for _, do in one] for one in seen))} == set(ACTIONS)
