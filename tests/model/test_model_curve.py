"""Is every message of a changing rate due where the area under the curve puts it?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.curve import Curve, CurveSegment
from crescendo.model.pacer import ConstantPacer, messages_within

SECOND = 10**9
rates = st.sampled_from([0.0, 1.0, 10.0, 333.0, 5000.0]) | st.floats(0.1, 20_000)
segments = st.builds(CurveSegment, st.integers(10**6, 20 * SECOND), rates, rates)
chains = st.lists(segments, min_size=1, max_size=6).filter(lambda chain: sum(p.messages for p in chain) > 1)


@given(chains, st.booleans(), st.integers(0, 100 * SECOND))
def test_the_count_and_the_times_never_disagree(chain: list[CurveSegment], repeats: bool, elapsed_ns: int) -> None:
    curve = Curve(chain, repeats=repeats)
    count = curve.due_count(elapsed_ns)
    due_ns = curve.due_ns(np.arange(max(count - 1, 0), count + 1)).tolist()
    if repeats or chain[-1].end:
        assert due_ns[-1] > elapsed_ns
    assert count == 0 or due_ns[0] <= elapsed_ns


@given(chains, st.booleans())
def test_no_message_is_due_before_its_predecessor(chain: list[CurveSegment], repeats: bool) -> None:
    curve = Curve(chain, repeats=repeats)
    last = curve.due_count(30 * SECOND)
    due_ns = curve.due_ns(np.linspace(0, max(last - 1, 0), 500).astype(np.int64))
    assert (np.diff(due_ns) >= 0).all()


@given(chains)
def test_the_due_count_is_the_area_under_the_rate(chain: list[CurveSegment]) -> None:
    """The area is summed in small steps, independently of the closed form."""
    middles = (np.arange(1000) + 0.5) / 1000
    area, until_ns = 0.0, 0
    for segment in chain:
        rates_there = segment.start + (segment.end - segment.start) * middles
        area += float(rates_there.mean()) * segment.length_ns / 1e9
        until_ns += segment.length_ns
    assert abs(Curve(chain).due_count(until_ns) - area) <= 2


@given(st.floats(1, 50_000), st.integers(0, 60 * SECOND))
def test_a_flat_curve_is_the_constant_pacer(rate: float, elapsed_ns: int) -> None:
    curve, constant = Curve([CurveSegment(SECOND, rate, rate)]), ConstantPacer(rate)
    numbers = np.array([0, 1, 7, 1000, 10**6])
    assert np.abs(curve.due_ns(numbers) - constant.due_ns(numbers)).max() <= 1
    assert abs(curve.due_count(elapsed_ns) - constant.due_count(elapsed_ns)) <= 1


def test_nothing_is_due_while_the_rate_is_zero() -> None:
    on_off = Curve([CurveSegment(SECOND, 100, 100), CurveSegment(SECOND, 0, 0)], repeats=True)
    due_ns = on_off.due_ns(np.arange(1000))
    assert ((due_ns % (2 * SECOND)) < SECOND).all()
    assert messages_within(on_off, 20 * SECOND) == 1000
    off_on = Curve([CurveSegment(SECOND, 0, 0), CurveSegment(SECOND, 100, 100)], repeats=True)
    assert off_on.due_ns(np.array([0, 1])).tolist() == [SECOND, SECOND + 10**7]


def test_a_ramp_reaches_its_rate_and_stays_there() -> None:
    ramp = Curve([CurveSegment(10 * SECOND, 0, 1000)])
    assert messages_within(ramp, 10 * SECOND) == 5000
    assert messages_within(ramp, 20 * SECOND) == 15_000


def test_a_curve_without_messages_is_rejected() -> None:
    with pytest.raises(ValueError, match="never sends anything"):
        Curve([CurveSegment(SECOND, 0, 0)])
