"""The Spark expression and `model.histogram` agree on every bucket."""

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from crescendo.model.histogram import bucket_of
from crescendo.pipeline.latency.buckets import bucket_column


def test_the_bucket_expression_matches_the_model_in_every_octave_and_at_both_ends_of_64_bits(
    spark: SparkSession,
) -> None:
    edges = [sign * (2**power + step) for power in range(63) for step in (-2, -1, 0, 1, 2) for sign in (1, -1)]
    random = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 2_000, np.int64, endpoint=True).tolist()
    values = np.array([*edges, *random, 0, 511, 512, 2**63 - 1, -(2**63), -(2**63) + 1], np.int64)

    frame = spark.createDataFrame([(int(value),) for value in values], "value BIGINT")
    rows = frame.select("value", bucket_column(F.col("value")).alias("bucket")).collect()

    assert [row.value for row in rows] == values.tolist()
    assert [row.bucket for row in rows] == bucket_of(values).tolist()
