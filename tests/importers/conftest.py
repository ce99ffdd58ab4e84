"""One Spark and one import of each sample for all tests of importers: starting Spark costs more than all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from imported_runs import SAMPLES, Run
from pyspark.sql import SparkSession

from crescendo.importers.harvest import Options
from crescendo.importers.job import Imported, carry_out, order
from crescendo.pipeline.java import use_java
from crescendo.pipeline.session import close_session, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    use_java()
    session = open_session()
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def importing(spark: SparkSession) -> Run:
    def run(form: str, paths: list[Path], out: Path, options: Options | None = None) -> Imported:
        return carry_out(order(form, paths, out), spark, options or Options(), lambda _: None)

    return run


@pytest.fixture(scope="session")
def maestro(importing: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Imported]:
    """All samples of Maestro, imported as one directory."""
    out = tmp_path_factory.mktemp("maestro") / "run"
    return out, importing("maestro", [SAMPLES / "maestro"], out)
