"""One import of each sample for all tests of importers."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.importers.format import ImportOptions
from crescendo.importers.job import Imported, carry_out, order
from imported_runs import SAMPLES, Run


@pytest.fixture(scope="session")
def importing(spark: SparkSession) -> Run:
    def run(form: str, paths: list[Path], out: Path, options: ImportOptions | None = None) -> Imported:
        return carry_out(order(form, paths, out), spark, options or ImportOptions(), lambda _: None)

    return run


@pytest.fixture(scope="session")
def maestro(importing: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Imported]:
    """All samples of Maestro, imported as one directory."""
    out = tmp_path_factory.mktemp("maestro") / "run"
    return out, importing("maestro", [SAMPLES / "maestro"], out)
