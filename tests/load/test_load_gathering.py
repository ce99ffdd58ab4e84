"""Does reading wait only where nobody minds, and never long?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.gathering import FEW, LEAST_NS, MOST_NS, SHARE, Gathering

AMPLE = 10_000
LOOKS = st.lists(st.tuples(st.integers(0, 2 * FEW), st.integers(-(10**9), 10**10)), max_size=8)


@given(LOOKS, st.integers(0, 10**9), st.integers(0, AMPLE))
def test_a_pause_is_a_small_share_of_what_messages_take_anyway(
    looks: list[tuple[int, int]], since_ns: int, window: int
) -> None:
    some = Gathering(unhurried=True)
    some.pause_s(10**12, window)
    for messages, took_ns in looks:
        some.add(messages, took_ns)
    pause_ns = round(some.pause_s(10**12 + since_ns, window) * 1e9)
    messages, took_ns = sum(count for count, _ in looks), looks[-1][1] if looks else 0
    if pause_ns:
        enough = min(FEW, window // 4)
        assert 0 < messages < enough
        assert LEAST_NS <= pause_ns <= min(took_ns // SHARE, MOST_NS)
        assert pause_ns * messages // max(since_ns, 1) <= enough, "at their pace the window does not run dry"
    assert some.pause_s(10**12 + 2 * since_ns, window) == 0, "what came was before the last pause"


def test_few_messages_of_a_busy_system_are_worth_a_pause() -> None:
    some = Gathering(unhurried=True)
    some.pause_s(10**12, AMPLE)
    some.add(FEW // 4, 10**9)
    assert some.pause_s(10**12 + 1_000_000, AMPLE) == 4_000_000 / 1e9


def test_a_system_with_a_small_window_is_not_kept_waiting() -> None:
    some = Gathering(unhurried=True)
    some.pause_s(10**12, 20)
    some.add(20, 10**9)
    assert some.pause_s(10**12 + 1_000_000, 20) == 0


def test_whoever_paces_never_waits() -> None:
    some = Gathering(unhurried=False)
    some.add(1, 10**10)
    assert some.pause_s(10**12, AMPLE) == 0
