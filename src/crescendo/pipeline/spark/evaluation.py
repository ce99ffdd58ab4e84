"""Are the expressions of a query compiled or interpreted?

Spark writes a Java program for every query, compiles it and loads it. The constants of a run are in that program, so
the next run needs another one. For a short run that takes longer than interpreting the expressions row by row, and both
give the same values. Which of the two is faster depends on the number of rows alone. Runs no query.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from crescendo.pipeline.spark.errors import SPARK_ERRORS

INTERPRETED_ROWS = 10_000
"""Up to this number of rows in all tables of a recording, expressions are interpreted."""

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def is_interpreted(rows: int) -> bool:
    """Whether the queries of a recording with this number of rows in all tables are interpreted."""
    return rows <= INTERPRETED_ROWS


@contextmanager
def evaluation_for(rows: int, spark: SparkSession) -> Iterator[None]:
    """While this lasts, queries of the session are evaluated as is best for this number of rows."""
    if not is_interpreted(rows):
        yield
        return
    before = {name: spark.conf.get(name) for name in _INTERPRETED}
    _set(spark, _INTERPRETED)
    try:
        yield
    finally:
        with suppress(*SPARK_ERRORS):  # after an interrupt the JVM is gone
            _set(spark, before)


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is not None:
            spark.conf.set(name, value)
