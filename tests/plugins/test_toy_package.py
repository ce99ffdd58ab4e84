"""Does a package that is installed with pip add one part of each kind, and can a whole run use them all?"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

import crescendo as crescendo_package
from crescendo.importers.format import ImportOptions
from crescendo.importers.job import plan_import, run_import
from installed_package import forget_packages

pytestmark = pytest.mark.shares("spark")  # all tests of this module in one worker: they share an environment and a run
PACKAGE = Path(__file__).with_name("toy_package")
PARTS = {
    "systems toy-queue",
    "inspectors toy-queue",
    "importers toy-rates",
    "exporters toy-rates",
    "verbs count",
    "protocols toy",
    "tables toy_sizes",
    "checks toy_missing",
    "checks toy_largest",
}
TOY_EXPERIMENT = {
    "name": "toy",
    "system": {"kind": "toy-queue"},
    "workload": {"protocol": "toy", "senders": 2, "receivers": 2, "rate": 200},
    "phases": {"warmup": "0s", "measure": "2s", "drain": "5s"},
    "inspect": [{"kind": "toy-queue", "every": "500ms"}],
    "checks": {"lost": 0, "toy_missing": 0, "toy_largest": "<= 256", "backlog_peak": "<= 800"},
}
Crescendo = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that has the toy package, and sees the packages of this one."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, symlinks=True)
    seen = [str(Path(crescendo_package.__file__).parents[1]), *(path for path in sys.path if "site-packages" in path)]
    (_site(root) / "seen.pth").write_text("\n".join(seen) + "\n")
    archives = Path(sys.prefix, "share", "crescendo")
    if archives.is_dir():  # Spark starts faster with it
        (root / "share").mkdir()
        (root / "share" / "crescendo").symlink_to(archives)
    shutil.copytree(PACKAGE, root / "package")  # the build writes into its source
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(_site(root)), str(root / "package")], check=True, timeout=60)
    return root


def _site(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))


@pytest.fixture(scope="module")
def crescendo(environment: Path) -> Crescendo:
    """The command, in that environment."""

    def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "bin" / "python"), "-m", "crescendo.cli.main", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=environment)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="module")
def run_dir(crescendo: Crescendo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run with every plugin that takes part in one."""
    directory = tmp_path_factory.mktemp("toy")
    (directory / "toy.yml").write_text(yaml.safe_dump(TOY_EXPERIMENT))
    crescendo("run", directory / "toy.yml", "--out", directory / "runs")
    runs = [path for path in (directory / "runs").iterdir() if not path.is_symlink()]
    (found,) = (path for path in runs if (path / "manifest.json").is_file())
    return found


def _document(path: Path) -> Any:
    return json.loads(path.read_text())


def _query(run_dir: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as engine:
        engine.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{run_dir}/{table}/*.parquet')")  # noqa: S608
        return engine.execute(query).fetchall()


def test_doctor_lists_every_plugin_of_the_package(crescendo: Crescendo) -> None:
    printed = crescendo("doctor", "--json", code=0).stdout
    found = [item for item in json.loads(printed) if item["name"] == "plugin"]
    assert {item["package"] for item in found} == {"crescendo-toy 1.0"}
    usable = [item["detail"].partition(", of crescendo-toy 1.0")[0] for item in found if item["state"] == "ok"]
    assert sorted(usable) == sorted(PARTS)
    assert len(found) == len(PARTS)
    assert all(item["ok"] == (item["state"] == "ok") for item in found)


def test_help_lists_formats_and_verbs_of_plugins(crescendo: Crescendo) -> None:
    shown = " ".join(crescendo("export", "--help").stdout.replace("│", " ").split())
    assert "maestro, openmetrics, otlp, amqp-csv, toy-rates." in shown
    assert "toy-rates." in crescendo("import", "--help").stdout
    assert "Print how many messages of a run arrived." in crescendo("--help").stdout


def test_a_whole_run_is_judged(run_dir: Path) -> None:
    summary, manifest = _document(run_dir / "summary.json"), _document(run_dir / "manifest.json")
    assert summary["verdict"]["outcome"] == "pass"
    assert summary["ledger"][0]["delivered"] == summary["ledger"][0]["sent"] == 800
    assert {check["metric"] for check in summary["verdict"]["checks"]} == set(manifest["experiment"]["checks"])


def test_the_run_went_through_system_protocol_inspector_table_and_check(run_dir: Path) -> None:
    summary, manifest = _document(run_dir / "summary.json"), _document(run_dir / "manifest.json")
    assert manifest["system"]["kind"] == "toy-queue"
    assert manifest["system"]["origin"] == "package crescendo-toy 1.0"
    checks = {check["metric"]: (check["outcome"], check["value"]) for check in summary["verdict"]["checks"]}
    assert checks["toy_missing"] == ("pass", 0)
    assert checks["toy_largest"] == ("pass", 256)  # read from the table of the same package
    ((peak,),) = _query(run_dir / "tables", "backlog", "SELECT max(peak) FROM rows")
    assert checks["backlog_peak"] == ("pass", peak)
    most = _query(run_dir, "readings", "SELECT metric, max(value) FROM rows WHERE entity = 'queues' GROUP BY metric")
    assert dict(most)["accepted"] == dict(most)["delivered"] == 800
    assert _query(run_dir / "tables", "toy_sizes", "SELECT size, messages FROM rows") == [(256, 800)]


def test_what_the_exporter_writes_the_importer_reads(
    crescendo: Crescendo,
    environment: Path,
    run_dir: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = crescendo("export", "toy-rates", run_dir, "--out", tmp_path / "rates").stdout
    assert printed.strip() == str(tmp_path / "rates" / "rates.csv")
    lines = (tmp_path / "rates" / "rates.csv").read_text().splitlines()
    assert sum(int(line.split(",")[1]) for line in lines[1:]) == 800
    monkeypatch.syspath_prepend(_site(environment))  # in this process, because another Spark would cost seconds
    forget_packages()
    try:
        plan = plan_import("toy-rates", [tmp_path / "rates"], tmp_path / "imported")
        run_import(plan, spark, ImportOptions(), lambda _: None)
    finally:
        forget_packages()
    imported = _query(tmp_path / "imported", "rates", "SELECT t_ns // 1000000000, messages FROM rows ORDER BY t_ns")
    assert [f"{second},{messages}" for second, messages in imported] == lines[1:]


def test_a_verb_is_called_and_its_mistakes_are_one_sentence(crescendo: Crescendo, run_dir: Path) -> None:
    assert crescendo("count", run_dir).stdout == "800 of 800 messages arrived: pass\n"
    mistake = crescendo("count", run_dir / "nothing", code=2).stderr
    assert re.fullmatch(r"crescendo: .*nothing.*\n", mistake)


def test_the_package_needs_the_files_that_the_guide_for_contributors_names() -> None:
    guide = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text()
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".toml"}]
    assert len(files) == 8
    assert "in eight files" in guide
    assert all(f"`{path.name}`" in guide for path in files)


def test_the_examples_of_the_documentation_are_those_of_the_package() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "plugins.md").read_text()
    sources = [path.read_text() for path in PACKAGE.rglob("*") if path.suffix in {".py", ".toml"}]
    examples = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 12
    for example in examples:
        assert any(example in source for source in sources), example
