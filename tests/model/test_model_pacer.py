"""Does arithmetic alone decide when each message is due?"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.pacer import (
    MAX_RATE,
    MIN_RATE,
    UNLIMITED,
    ConstantPacer,
    UnboundedPacer,
    messages_within,
    pacer_for,
)

TEN_YEARS_S = 3 * 10**8
rates = st.sampled_from([1.0, 3.0, 7.0, 999.0, 4600.0, 700_000.0, 1_000_000.0, 0.1, 1 / 3]) | st.floats(0.01, 5e6)
phases = st.sampled_from([0.0, 0.5]) | st.floats(0, 0.999)


@st.composite
def rates_and_numbers(draw: st.DrawFn) -> tuple[float, list[int]]:
    """A rate, and message numbers that are due within ten years."""
    rate = draw(rates)
    return rate, draw(st.lists(st.integers(0, min(int(rate * TEN_YEARS_S), 10**11)), min_size=1, max_size=20))


def due(pacer: ConstantPacer, n: int) -> int:
    return int(pacer.due_ns(np.array([n], np.int64))[0])


@given(rates_and_numbers())
def test_the_due_count_matches_the_due_times(drawn: tuple[float, list[int]]) -> None:
    pacer, n = ConstantPacer(drawn[0]), drawn[1][0]
    count = pacer.due_count(due(pacer, n))
    assert count >= n + 1
    assert due(pacer, count) > due(pacer, n) >= due(pacer, count - 1)


@given(rates, phases, st.integers(-10, 10**14))
def test_the_count_and_the_times_never_disagree(rate: float, phase: float, elapsed_ns: int) -> None:
    pacer = ConstantPacer(rate, phase)
    count = pacer.due_count(elapsed_ns)
    assert due(pacer, count) > elapsed_ns
    assert count == 0 or due(pacer, count - 1) <= elapsed_ns


@given(rates_and_numbers())
def test_due_times_are_those_of_exact_arithmetic(drawn: tuple[float, list[int]]) -> None:
    rate, n = drawn[0], drawn[1][0]
    exact_ns = Fraction(n) * 10**9 / Fraction(rate)
    # A double has 53 bits: half a nanosecond of rounding, and one nanosecond per 2^53.
    assert abs(due(ConstantPacer(rate), n) - exact_ns) <= Fraction(1, 2) + exact_ns / 2**51


def test_no_drift_at_700_000_a_second_over_a_day() -> None:
    pacer = ConstantPacer(700_000.0)
    for hours in (1, 6, 24):
        seconds = hours * 3600
        assert due(pacer, 700_000 * seconds) == seconds * 10**9
        assert messages_within(pacer, seconds * 10**9) == 700_000 * seconds


@given(rates_and_numbers())
def test_a_vector_gives_the_same_times_as_single_calls(drawn: tuple[float, list[int]]) -> None:
    pacer, numbers = ConstantPacer(drawn[0]), drawn[1]
    together = pacer.due_ns(np.array(numbers, np.int64))
    assert together.dtype == np.int64
    assert together.tolist() == [due(pacer, n) for n in numbers]


@given(st.integers(1, 100_000), st.floats(0, 0.99), st.integers(1, 1000))
def test_a_whole_number_of_seconds_holds_exactly_rate_times_seconds(rate: int, phase: float, seconds: int) -> None:
    assert messages_within(ConstantPacer(float(rate), phase), seconds * 10**9) == rate * seconds


def test_the_interval_is_half_open() -> None:
    assert messages_within(ConstantPacer(1.0), 10**9) == 1
    assert messages_within(ConstantPacer(1.0), 10**9 + 1) == 2
    assert messages_within(ConstantPacer(1000.0), 0) == 0


def test_unbounded_is_always_due_but_not_before_the_start() -> None:
    pacer = UnboundedPacer()
    assert not pacer.bounded
    assert (pacer.due_count(-1), pacer.due_count(0), messages_within(pacer, 5)) == (0, UNLIMITED, UNLIMITED)


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), -1.0, MAX_RATE * 2, MIN_RATE / 2, 1e-300, 1e300])
def test_a_rate_out_of_range_is_rejected(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        pacer_for(rate)


@pytest.mark.parametrize("rate", [MIN_RATE, MAX_RATE])
def test_the_slowest_and_the_fastest_rate_still_have_due_times(rate: float) -> None:
    pacer = pacer_for(rate)
    numbers = pacer.due_ns(np.array([0, 1, 2], np.int64)).tolist()
    assert numbers == [0, round(1e9 / rate), round(2e9 / rate)]
    assert pacer.due_count(numbers[1]) == 2
    assert pacer_for(0) == UnboundedPacer()
