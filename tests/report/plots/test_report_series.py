"""The numbers behind the lines, against NumPy's order statistics on the raw samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.histogram import bucket_of
from crescendo.report.data.chart_tables import HistogramCounts, TimeBins
from crescendo.report.plots.series import densities, latency_lines, spectrum

BUCKET_WIDTH = 1 / 256


def _counts(bins: np.ndarray, values_ns: np.ndarray) -> HistogramCounts:
    keys, back = np.unique(np.stack([bins, bucket_of(values_ns)]), axis=1, return_inverse=True)
    largest = np.full(keys.shape[1], np.iinfo(np.int64).min)
    np.maximum.at(largest, back, values_ns)
    return HistogramCounts(keys[0], keys[1], np.bincount(back, minlength=keys.shape[1]), largest)


def _one_bin(values_ns: np.ndarray) -> HistogramCounts:
    return _counts(np.zeros(values_ns.size, np.int64), values_ns)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=6))
def test_lines_follow_the_order_statistics_of_each_bin(seed: int, sizes: list[int]) -> None:
    draw = np.random.default_rng(seed)
    bins = np.repeat(np.arange(len(sizes)), sizes)
    values_ns = draw.lognormal(13, 1.5, bins.size).astype(np.int64)
    lines = latency_lines(_counts(bins, values_ns), TimeBins(0, 1, len(sizes)))
    for number, size in enumerate(sizes):
        mine = np.sort(values_ns[bins == number])
        assert np.isnan(lines.max_s[number]) == (size == 0)
        for line_s, percent, enough in ((lines.p50_s, 50, 20), (lines.p99_s, 99, 1_000)):
            if size < enough:
                assert np.isnan(line_s[number])
            else:
                exact_s = np.percentile(mine, percent, method="inverted_cdf") / 1e9
                assert exact_s <= line_s[number] * (1 + 1e-12)
                assert line_s[number] <= exact_s * (1 + BUCKET_WIDTH) + 1e-9
        if size:
            assert lines.max_s[number] == mine[-1] / 1e9


def test_the_spectrum_ends_where_ten_samples_are_left() -> None:
    values_ns = np.arange(1, 100_001) * 1_000
    line = spectrum(_one_bin(values_ns))
    assert line.percent[-1] == pytest.approx(99.99)
    assert line.latency_s[-1] * 1e9 == pytest.approx(values_ns[-11], rel=BUCKET_WIDTH)
    assert line.nines[-1] == pytest.approx(4)
    at_99 = np.interp(2, line.nines, line.latency_s)
    assert at_99 * 1e9 == pytest.approx(99_000_000, rel=BUCKET_WIDTH)


def test_nineteen_samples_have_no_spectrum_and_twenty_have() -> None:
    assert spectrum(_one_bin(np.arange(1, 20))).nines.size == 0
    assert spectrum(_one_bin(np.arange(1, 21))).nines.size > 0


def test_every_sample_is_in_one_bar_and_kinds_share_their_edges() -> None:
    draw = np.random.default_rng(3)
    near, far = draw.lognormal(12, 0.2, 5_000).astype(np.int64), draw.lognormal(16, 1, 800).astype(np.int64)
    bars = densities({"settle": _one_bin(near), "response": _one_bin(far)})
    assert (bars["settle"].edges_s == bars["response"].edges_s).all()
    for values_ns, kind in ((near, "settle"), (far, "response")):
        assert bars[kind].share.sum() == pytest.approx(1)
        assert bars[kind].share[0] == bars[kind].share[-1] == 0  # a closed outline
        middle_s = np.sqrt(bars[kind].edges_s[:-1] * bars[kind].edges_s[1:])
        mean = np.average(np.log(middle_s), weights=bars[kind].share[:-1])
        assert mean == pytest.approx(np.log(values_ns / 1e9).mean(), abs=0.1)


def test_times_below_the_logarithmic_axis_are_counted() -> None:
    mixed = densities({"transfer": _one_bin(np.array([-5_000, -1, 0, 700_000, 700_000]))})["transfer"]
    assert mixed.below_scale == 3
    assert mixed.share.sum() == pytest.approx(2 / 5)
    lost = densities({"transfer": _one_bin(np.array([-5, -4]))})["transfer"]
    assert (lost.below_scale, lost.edges_s.size) == (2, 0)


def test_one_value_makes_one_bar() -> None:
    only = densities({"transfer": _one_bin(np.full(30, 1_000_000))})["transfer"]
    assert np.count_nonzero(only.share) == 1
    assert only.share.max() == 1
