"""One short run through the public functions, shared by all tests here. Its analysis uses the suite's Spark session."""

import pytest
from pyspark.sql import SparkSession

import crescendo
from api_runs import GATE, ObservedRun, Seen


@pytest.fixture(scope="session")
def observed_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ObservedRun:
    """An experiment that was run, analysed and reported."""
    assert spark.range(1).count() == 1  # it is running
    seen = Seen()
    return ObservedRun(crescendo.run(GATE, out=tmp_path_factory.mktemp("api"), observer=seen), seen)
