"""One import of each sample, shared by the tests of importers."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.importers.format import ImportOptions
from crescendo.importers.job import ImportSummary, plan_import, run_import
from imported_runs import SAMPLES, Run


@pytest.fixture(scope="session")
def importing(spark: SparkSession) -> Run:
    def run(format_name: str, paths: list[Path], out: Path, options: ImportOptions | None = None) -> ImportSummary:
        return run_import(plan_import(format_name, paths, out), spark, options or ImportOptions(), lambda _: None)

    return run


@pytest.fixture(scope="session")
def maestro(importing: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ImportSummary]:
    """All samples of Maestro, imported as one directory."""
    out = tmp_path_factory.mktemp("maestro") / "run"
    return out, importing("maestro", [SAMPLES / "maestro"], out)
