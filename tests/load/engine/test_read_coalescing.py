"""Does reading wait only where nobody minds, and never long?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.engine.read_coalescing import (
    ENOUGH_MESSAGES,
    LATENCY_SHARE,
    MAX_PAUSE_NS,
    MIN_PAUSE_NS,
    PERIOD_NS,
    WINDOW_SHARE,
    ReadCoalescer,
)

AMPLE = 100_000
NOW_NS = 10**12
LOOKS = st.lists(st.tuples(st.integers(0, 2 * ENOUGH_MESSAGES), st.integers(-(10**9), 10**10)), max_size=8)


def at_a_pace(messages: int, period_ns: int, window: int = AMPLE) -> ReadCoalescer:
    """It has seen so many messages within a period that ended now."""
    some = ReadCoalescer(unpaced=True)
    some.pause_s(NOW_NS - period_ns, window)
    some.add(messages, 0)
    some.pause_s(NOW_NS, window)
    return some


@given(
    st.integers(0, 10_000), LOOKS, st.integers(PERIOD_NS, 10**9), st.integers(0, PERIOD_NS - 1), st.integers(0, AMPLE)
)
def test_a_pause_is_a_small_share_of_what_messages_and_the_window_take_anyway(
    pace: int, looks: list[tuple[int, int]], period_ns: int, since_ns: int, window: int
) -> None:
    some = at_a_pace(pace, period_ns, window)
    for messages, latency_ns in looks:
        some.add(messages, latency_ns)
    pause_ns = some.pause_s(NOW_NS + since_ns, window) * 1e9
    messages, latency_ns = sum(count for count, _ in looks), looks[-1][1] if looks else 0
    if pause_ns:
        enough = min(ENOUGH_MESSAGES, window // WINDOW_SHARE)
        assert 0 < messages < enough
        assert pause_ns * 1.001 >= MIN_PAUSE_NS
        assert pause_ns <= min(latency_ns / LATENCY_SHARE, MAX_PAUSE_NS) * 1.001
        assert pause_ns * pace / period_ns <= enough * 1.001, "at their pace no more of the window than that fills"
    assert some.pause_s(NOW_NS + since_ns, window) == 0, "what came was before the last pause"


def test_few_messages_of_a_busy_system_are_worth_a_pause() -> None:
    some = at_a_pace(4000, PERIOD_NS)  # one every 5 us
    some.add(ENOUGH_MESSAGES // 2, 10**9)
    assert round(some.pause_s(NOW_NS + 50_000, AMPLE) * 1e9) == ENOUGH_MESSAGES // 2 * 5_000


def test_one_look_that_brings_little_by_chance_is_not_taken_for_the_pace() -> None:
    some = at_a_pace(20_000, PERIOD_NS, 1000)  # one every us
    some.add(1, 10**9)
    assert some.pause_s(NOW_NS + 10_000_000, 1000) == 0, "what is worth waiting for is there in no time"


def test_a_system_with_a_small_window_is_not_kept_waiting() -> None:
    some = at_a_pace(200, PERIOD_NS, 20)
    some.add(1, 10**9)
    assert some.pause_s(NOW_NS + 1_000_000, 20) == 0


def test_whoever_paces_never_waits() -> None:
    some = ReadCoalescer(unpaced=False)
    some.add(1, 10**10)
    assert some.pause_s(NOW_NS, AMPLE) == 0
