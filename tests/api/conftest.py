"""One short run through the public functions, shared by all tests here. Its analysis uses the suite's Spark session."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import crescendo
from api_runs import ObservedRun, Seen, load_example


@pytest.fixture(scope="session")
def observed_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ObservedRun:
    """The run of the first example, with all its assertions, under the eyes of an observer."""
    assert spark.range(1).count() == 1  # it is running
    seen, results = Seen(), []

    def observed(*arguments: Any, **options: Any) -> crescendo.RunResult:
        results.append(crescendo.run(*arguments, observer=seen, **options))
        return results[-1]

    example = load_example("run_and_assert")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "crescendo", SimpleNamespace(run=observed))
        example.test_the_broker_carries_the_load(tmp_path_factory.mktemp("api"))
    (result,) = results
    return ObservedRun(result, seen)
