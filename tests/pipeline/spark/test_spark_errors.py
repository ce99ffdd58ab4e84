"""Failures of Spark as one line, with a real session."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from crescendo.model.errors import LostError
from crescendo.pipeline.spark.errors import spark_errors


def test_a_failed_query_names_the_task_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(LostError) as caught, spark_errors("reading the logs"):
        spark.table("nowhere").collect()
    assert str(caught.value).startswith("reading the logs did not finish: [TABLE_OR_VIEW_NOT_FOUND]")
    assert "\n" not in str(caught.value)


def test_a_java_exception_is_named_instead_of_the_call(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(LostError) as caught, spark_errors("the live tables of runs/1", "ended"):
        jvm.java.util.Optional.empty().get()  # an exception that PySpark does not translate into one of its own
    reason = "java.util.NoSuchElementException: No value present"
    assert str(caught.value) == f"the live tables of runs/1 ended: {reason}"


def test_other_errors_pass(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), spark_errors("dividing"):
        _ = 1 / 0
