"""Trends and truncation against plain loops that follow the textbook."""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.pipeline.behaviour.trends import mser5, trend

series = st.lists(st.one_of(st.integers(0, 4), st.integers(-1000, 1000)), min_size=8, max_size=40)


@settings(max_examples=80)
@given(values=series)
def test_mann_kendall_and_theil_sen_match_all_pairs(values: list[int]) -> None:
    found = trend(np.array(values, float))
    assert found is not None
    pairs = list(combinations(range(len(values)), 2))
    s = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in pairs)
    n = len(values)
    ties = [values.count(value) for value in set(values)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = 0.0 if not variance else (s - (s > 0) + (s < 0)) / math.sqrt(variance)
    assert found.s == s
    assert found.z == pytest.approx(z)
    assert found.p == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), abs=1e-12)
    slopes = sorted((values[j] - values[i]) / (j - i) for i, j in pairs)
    assert found.slope == pytest.approx(statistics.median(slopes))
    assert slopes[0] <= found.slope_low <= found.slope <= found.slope_high <= slopes[-1]


def test_the_slope_interval_covers_the_true_slope() -> None:
    random = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        found = trend(3.0 * np.arange(30) + random.normal(0, 20, 30))
        assert found is not None
        held += found.slope_low <= 3.0 <= found.slope_high
    assert held >= 180


@settings(max_examples=60)
@given(values=st.lists(st.integers(-100, 100), min_size=0, max_size=120))
def test_mser5_cuts_where_the_standard_error_of_the_rest_is_smallest(values: list[int]) -> None:
    cut = mser5(np.array(values, float))
    batches = [statistics.fmean(values[i : i + 5]) for i in range(0, len(values) - 4, 5)]
    if len(batches) < 4:
        assert cut is None
        return
    errors = [statistics.pvariance(batches[d:]) / (len(batches) - d) for d in range(len(batches) - 1)]
    if cut is None:
        assert min(errors[: len(batches) // 2 + 1]) >= min(errors)
    else:
        assert cut % 5 == 0
        assert cut // 5 <= len(batches) // 2
        assert errors[cut // 5] == pytest.approx(min(errors), rel=1e-9, abs=1e-9)


def test_a_warm_up_is_cut_off_and_an_unsettled_series_is_recognised() -> None:
    random = np.random.default_rng(1)
    warm = np.concatenate([np.linspace(0, 100, 20), 100 + random.normal(0, 1, 100)])
    assert mser5(warm) in {15, 20}
    assert mser5(np.arange(100.0) ** 2) is None


def test_the_cut_removes_most_of_the_bias_of_a_transient() -> None:
    """Half of the mean at first, then an exponential approach with a time constant of 20 samples, under 5 % noise."""
    random = np.random.default_rng(1)
    approach = 1000 * (1 - 0.5 * np.exp(-np.arange(300) / 20))
    series = [approach + random.normal(0, 50, 300) for _ in range(200)]
    cuts = [(values, cut) for values in series if (cut := mser5(values)) is not None]
    assert len(cuts) > 100
    whole = np.mean([values.mean() for values in series])
    after = np.mean([values[cut:].mean() for values, cut in cuts])
    assert 1000 - whole > 30
    assert abs(1000 - after) < 5


def test_a_few_values_have_no_trend() -> None:
    assert trend(np.arange(7.0)) is None
