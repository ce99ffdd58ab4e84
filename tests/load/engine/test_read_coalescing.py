"""Does reading pause only when no message is urgent, and never long?"""

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
READS = st.lists(st.tuples(st.integers(0, 2 * ENOUGH_MESSAGES), st.integers(-(10**9), 10**10)), max_size=8)


def with_rate(messages: int, period_ns: int, window: int = AMPLE) -> ReadCoalescer:
    """A coalescer that has seen this many messages within a period that ended now."""
    coalescer = ReadCoalescer(unpaced=True)
    coalescer.pause_s(NOW_NS - period_ns, window)
    coalescer.add(messages, 0)
    coalescer.pause_s(NOW_NS, window)
    return coalescer


@given(
    st.integers(0, 10_000), READS, st.integers(PERIOD_NS, 10**9), st.integers(0, PERIOD_NS - 1), st.integers(0, AMPLE)
)
def test_a_pause_is_a_small_share_of_the_latency_and_of_the_window(
    count: int, reads: list[tuple[int, int]], period_ns: int, since_ns: int, window: int
) -> None:
    coalescer = with_rate(count, period_ns, window)
    for messages, latency_ns in reads:
        coalescer.add(messages, latency_ns)
    pause_ns = coalescer.pause_s(NOW_NS + since_ns, window) * 1e9
    messages, latency_ns = sum(count for count, _ in reads), reads[-1][1] if reads else 0
    if pause_ns:
        enough = min(ENOUGH_MESSAGES, window // WINDOW_SHARE)
        assert 0 < messages < enough
        assert pause_ns * 1.001 >= MIN_PAUSE_NS
        assert pause_ns <= min(latency_ns / LATENCY_SHARE, MAX_PAUSE_NS) * 1.001
        assert pause_ns * count / period_ns <= enough * 1.001, (
            "at their rate a pause fills no more of the window than that"
        )
    assert coalescer.pause_s(NOW_NS + since_ns, window) == 0, "nothing was read since the last pause"


def test_few_messages_of_a_busy_system_are_worth_a_pause() -> None:
    coalescer = with_rate(4000, PERIOD_NS)  # one every 5 us
    coalescer.add(ENOUGH_MESSAGES // 2, 10**9)
    assert round(coalescer.pause_s(NOW_NS + 50_000, AMPLE) * 1e9) == ENOUGH_MESSAGES // 2 * 5_000


def test_one_small_read_is_not_taken_for_the_arrival_rate() -> None:
    coalescer = with_rate(20_000, PERIOD_NS, 1000)  # one every us
    coalescer.add(1, 10**9)
    assert coalescer.pause_s(NOW_NS + 10_000_000, 1000) == 0, "at this rate enough messages arrive in no time"


def test_a_system_with_a_small_window_is_not_kept_waiting() -> None:
    coalescer = with_rate(200, PERIOD_NS, 20)
    coalescer.add(1, 10**9)
    assert coalescer.pause_s(NOW_NS + 1_000_000, 20) == 0


def test_a_read_that_left_something_is_followed_by_the_next_at_once() -> None:
    """After a stall a receiver reads small pieces; with pauses between them it would never catch up."""
    coalescer = with_rate(4000, PERIOD_NS)
    coalescer.add(14, 10**9, drained=False)
    assert coalescer.pause_s(NOW_NS + 50_000, AMPLE) == 0
    coalescer.add(14, 10**9)
    assert coalescer.pause_s(NOW_NS + 60_000, AMPLE) > 0


def test_paced_load_never_pauses() -> None:
    coalescer = ReadCoalescer(unpaced=False)
    coalescer.add(1, 10**10)
    assert coalescer.pause_s(NOW_NS, AMPLE) == 0
