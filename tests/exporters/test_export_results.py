"""Results of a run as CSV, JUnit XML and OpenMetrics, read back by programs that share no code with ours."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest

from crescendo.exporters.registry import exporter_of
from crescendo.model.errors import ConfigError
from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.record.summary import read_summary
from report_samples import SAMPLES, write_sample


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("runs") / "failing", SAMPLES["failing"])


def test_every_table_is_a_csv_with_the_same_rows(failing: Path, tmp_path: Path) -> None:
    files = exporter_of("csv")(failing, tmp_path / "csv")
    tables = sorted(path.name for path in (failing / "tables").iterdir())
    assert [path.stem for path in files] == tables
    for path in files:
        parts = failing / "tables" / path.stem / "*.parquet"
        (counted,) = duckdb.sql(f"SELECT count(*) FROM '{parts}'").fetchall()[0]  # noqa: S608
        with path.open(newline="") as file:
            assert len(list(csv.reader(file))) == counted + 1
    with pytest.raises(ConfigError, match="not empty"):
        exporter_of("csv")(failing, tmp_path / "csv")


def test_a_failed_check_is_a_failed_test_case(failing: Path, tmp_path: Path) -> None:
    (path,) = exporter_of("junit")(failing, tmp_path / "junit")
    suite = ElementTree.parse(path).getroot()  # noqa: S314 - written a line ago
    verdict = read_summary(failing).verdict
    failed = [check.metric for check in verdict.checks if check.outcome == "fail"]
    assert failed
    assert suite.attrib["tests"] == str(len(verdict.checks))
    assert [case.attrib["name"] for case in suite if case.find("failure") is not None] == failed


def test_metrics_have_the_numbers_of_the_summary(failing: Path, tmp_path: Path) -> None:
    (path,) = exporter_of("openmetrics")(failing, tmp_path / "om")
    lines = path.read_text().splitlines()
    summary = read_summary(failing)
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert values[f'crescendo_run_rate{{run="{summary.run}",kind="sustained"}}'] == pytest.approx(
        summary.rate.sustained
    )
    assert values[f'crescendo_run_verdict{{run="{summary.run}",outcome="fail"}}'] == 1
    assert values[f'crescendo_run_messages{{run="{summary.run}",kind="lost"}}'] == summary.total.lost
    assert lines[-1] == "# EOF"


def test_a_label_cannot_end_its_line() -> None:
    family = MetricFamily("a b", "gauge", "about\nit")
    family.add(1.5, name='x"\n\\y')
    family.add(float("nan"), name="gone")
    assert exposition([family]) == '# TYPE a_b gauge\n# HELP a_b about\\nit\na_b{name="x\\"\\n\\\\y"} 1.5\n# EOF\n'
