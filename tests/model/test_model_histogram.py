"""Do bucket counts give the same percentiles as the samples?"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.histogram import bucket_ceiling, bucket_of, percentile, samples_beyond

latencies = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2000, 2000),
    st.integers(0, 62).flatmap(lambda k: st.sampled_from([2**k - 1, 2**k, 2**k + 1, -(2**k)])),
)


def bucket(value: int) -> int:
    return int(bucket_of(np.array([value], np.int64))[0])


@given(latencies)
def test_a_bucket_holds_its_value_and_is_at_most_0_4_percent_wide(value: int) -> None:
    ceiling = bucket_ceiling(bucket(value))
    assert value <= ceiling
    assert ceiling - value <= max(abs(value), abs(ceiling)) * 0.004


@given(latencies)
def test_the_ceiling_is_the_last_value_of_its_bucket(value: int) -> None:
    number = bucket(value)
    ceiling = bucket_ceiling(number)
    assert ceiling == 2**63 - 1 or bucket(ceiling + 1) == number + 1
    if ceiling < 2**63:
        assert bucket(ceiling) == number


@given(latencies, latencies)
def test_buckets_keep_the_order_of_the_values(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert bucket(low) <= bucket(high)


@given(st.integers(-512, 511))
def test_small_values_are_exact(value: int) -> None:
    assert bucket_ceiling(bucket(value)) == value


@given(
    st.lists(st.integers(0, 10**11), min_size=1, max_size=300),
    st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0]),
)
def test_percentiles_agree_with_the_sorted_samples(samples: list[int], percent: float) -> None:
    counts = Counter(bucket_of(np.array(samples, np.int64)).tolist())
    found = percentile(np.array(list(counts)), np.array(list(counts.values())), percent)
    exact = int(np.percentile(np.array(samples), percent, method="inverted_cdf"))
    assert exact <= found <= exact * 1.004 + 1


@pytest.mark.parametrize(
    ("count", "percent", "beyond"),
    [(1000, 99.9, 1), (10_000, 99.9, 10), (100_000, 99.99, 10), (1000, 99.0, 10), (1, 50.0, 0), (0, 99.0, -1)],
)
def test_samples_beyond_are_counted_exactly(count: int, percent: float, beyond: int) -> None:
    assert samples_beyond(count, percent) == beyond


def test_the_rank_of_a_percentile_is_not_one_too_high() -> None:
    # 99.9 % of 1000 samples is the 999th, although 99.9 / 100 * 1000 is slightly more than 999 in floats.
    assert percentile(np.arange(1, 401), np.array([1] * 399 + [601]), 39.9) == 399
    thousand = np.array([999, 1])
    assert percentile(np.array([5, 500]), thousand, 99.9) == 5


def test_there_is_no_percentile_without_samples() -> None:
    with pytest.raises(ValueError, match="without samples"):
        percentile(np.array([], np.int64), np.array([], np.int64), 50.0)
