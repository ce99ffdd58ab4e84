"""Statistics from bucket counts against sorted samples."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.histogram import bucket_of
from crescendo.model.metrics import PERCENTILES
from crescendo.pipeline.latency.quantiles import group_statistics, ranks


def counts_of(groups: dict[str, list[int]], files: int) -> pa.Table:
    """Bucket counts; a bucket has up to one row per file, as Spark would write them."""
    rows = []
    for name, samples in groups.items():
        for start in range(files):
            values = np.array(samples[start::files], np.int64)
            for bucket in np.unique(bucket_of(values)):
                inside = values[bucket_of(values) == bucket]
                row = {"group": name, "bucket": int(bucket), "count": inside.size, "sum_ns": int(inside.sum())}
                rows.append(row | {"min_ns": int(inside.min()), "max_ns": int(inside.max())})
    return pa.Table.from_pylist(rows)


samples = st.lists(st.one_of(st.integers(-5_000, 5_000), st.integers(0, 10**10)), min_size=1, max_size=300)


@settings(max_examples=60)
@given(groups=st.dictionaries(st.sampled_from("abc"), samples, min_size=1), files=st.integers(1, 3))
def test_the_statistics_of_every_group_match_its_sorted_samples(groups: dict[str, list[int]], files: int) -> None:
    rows = {row["group"]: row for row in group_statistics(counts_of(groups, files), ["group"]).to_pylist()}
    assert list(rows) == sorted(groups)
    for name, values in groups.items():
        row, ordered = rows[name], sorted(values)
        assert (row["count"], row["min_ns"], row["max_ns"]) == (len(values), ordered[0], ordered[-1])
        assert row["negative"] == sum(value < 0 for value in values)
        assert row["mean_ns"] == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-6)
        for key, percent in PERCENTILES.items():
            rank = max(math.ceil(round(percent * len(values) / 100, 6)), 1)
            if len(values) - rank < 10:
                assert (row[key], row[f"{key}_low"], row[f"{key}_high"]) == (None, None, None)
                continue
            true = ordered[rank - 1]
            assert true <= row[key] <= min(true + abs(true) / 256 + 1, ordered[-1])
            assert row[f"{key}_low"] is row[f"{key}_high"] is None


def test_without_samples_there_are_no_rows() -> None:
    empty = counts_of({"a": [1]}, 1)[:0]
    assert group_statistics(empty, ["group"]).num_rows == 0


def test_ranks_are_exact_where_floats_are_not() -> None:
    assert ranks(np.array([1000, 1001, 1, 10**12]), 99.9).tolist() == [999, 1000, 1, 999 * 10**9]
