"""One quiet Spark, for those who read what we wrote: the same one as everybody's, if it runs already."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.java import use_java
from crescendo.pipeline.session import close_session, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    use_java()
    session = open_session()
    yield session
    close_session(session)
