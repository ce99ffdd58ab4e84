"""Seconds and phases of a run, without a manifest and without Spark."""

import pytest

from crescendo.record.manifest import Phase
from crescendo.record.timeline import SECOND_NS, RunTimeline, whole_ticks

S = SECOND_NS


def test_only_seconds_inside_the_measure_phase_are_whole() -> None:
    timeline = RunTimeline.of([Phase("warmup", 10, 10 + S + 1), Phase("measure", 11 + S, 10 + 4 * S + 5)])
    assert timeline.whole_seconds == range(2, 4)


def test_a_measure_phase_that_begins_with_a_second_includes_it() -> None:
    assert RunTimeline.of([Phase("measure", 7, 7 + 3 * S)]).whole_seconds == range(3)


def test_a_measure_phase_within_one_second_has_no_whole_second() -> None:
    seconds = RunTimeline.of([Phase("warmup", 0, S + 1), Phase("measure", S + 1, 2 * S - 1)]).whole_seconds
    assert len(seconds) == 0


@pytest.mark.parametrize("phases", [[], [Phase("warmup", 0, S)]])
def test_without_a_measure_phase_no_second_is_whole(phases: list[Phase]) -> None:
    assert not RunTimeline.of(phases).whole_seconds


def test_phases_are_put_in_order_and_the_first_is_the_origin() -> None:
    timeline = RunTimeline.of([Phase("drain", 9, 12), Phase("measure", 5, 9)], started_ns=1)
    assert timeline.origin_ns == 5
    assert [phase.name for phase in timeline.phases] == ["measure", "drain"]
    assert RunTimeline.of([], started_ns=1).origin_ns == 1


def test_a_time_before_the_origin_is_in_a_negative_second() -> None:
    timeline = RunTimeline.of([Phase("measure", 5, 5 + S)])
    assert [timeline.second_at(t_ns) for t_ns in (4, 5, 4 + S, 5 + S)] == [-1, 0, 0, 1]
    assert timeline.seconds_since_start(5 - S // 2) == -0.5


def test_ticks_are_counted_like_seconds() -> None:
    measure = Phase("measure", 2 * S, 4 * S)
    assert whole_ticks(measure, 0, S // 10) == range(20, 40)
    assert whole_ticks(measure, 0, 10 * S) == range(1, 1)
