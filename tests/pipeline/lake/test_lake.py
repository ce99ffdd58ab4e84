"""Many runs become one lake: complete, repeatable, and independent of each other."""

import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.cli.analyze import analyze as analyze_verb
from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.build import build_lake
from crescendo.pipeline.lake.lake import escaped, unescaped
from crescendo.pipeline.receipts import RECEIPT, Receipt, read_receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.manifest import read_manifest, write_manifest
from many_runs import eventful, plain, write_run
from table_hashes import hashes
from tiny_recordings import Tiny, silent

Lake = tuple[list[Path], Path]


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two runs, the second of them fast to analyse, and their lake. Tests work on copies."""
    folder = tmp_path_factory.mktemp("lake")
    runs = [write_run(folder, "run 1", eventful(), 1, inspected=True), write_run(folder, "run 2", plain(2), 2)]
    results = build_lake(runs, folder / "lake", spark, silent)
    assert [(one.computed, one.fault) for one in results] == [(True, "")] * 2
    return runs, folder / "lake"


@pytest.fixture
def copied(built: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(built[1].parent, tmp_path / "copy")
    return [tmp_path / "copy" / run.name for run in built[0]], tmp_path / "copy" / "lake"


def lake_hashes(lake: Path, run: str) -> dict[str, str]:
    """The tables of one run in the lake, hashed as by `hashes`."""
    view = lake.parent / f"view of {run}"
    shutil.rmtree(view, ignore_errors=True)
    for folder in lake.glob(f"*/experiment=tiny/run={escaped(run)}"):
        if folder.parts[-3] != "runs":
            shutil.copytree(folder, view / folder.parts[-3])
    return hashes(view)


def test_a_receipt_that_names_paths_is_ignored(tmp_path: Path) -> None:
    """Its tables become folders of the lake, and a recording may come from anybody."""
    (tmp_path / RECEIPT).write_text('{"fingerprint": "f", "full": false, "tables": ["latency", "../../evil"]}')
    assert read_receipt(Directory(tmp_path)) is None
    (tmp_path / RECEIPT).write_text('{"fingerprint": "f", "full": false, "tables": ["latency"]}')
    assert read_receipt(Directory(tmp_path)) == Receipt("f", False, ["latency"])


def test_the_lake_has_every_table_of_every_run(built: Lake) -> None:
    runs, lake = built
    for run in runs:
        assert lake_hashes(lake, run.name) == hashes(run / "tables")
    assert {"jitter", "bursts", "errors", "spans", "reading_summary"} <= hashes(runs[0] / "tables").keys()


def test_spark_and_duckdb_find_the_partitions_by_themselves(built: Lake, spark: SparkSession) -> None:
    runs, lake = built
    expected = sorted(
        (run.name, sum(row["messages"] for row in pq.read_table(run / "tables" / "throughput").to_pylist()))
        for run in runs
    )
    by_spark = spark.read.parquet(str(lake / "throughput")).groupBy("experiment", "run").sum("messages").collect()
    assert sorted((row[1], row[2]) for row in by_spark) == expected
    query = f"""SELECT run, sum(messages)::BIGINT FROM read_parquet('{lake}/throughput/*/*/*.parquet',
        hive_partitioning = true) WHERE experiment = 'tiny' GROUP BY run ORDER BY run"""  # noqa: S608
    assert duckdb.sql(query).fetchall() == expected
    query = f"SELECT run, state FROM read_parquet('{lake}/runs/*/*/*.parquet') ORDER BY run"  # noqa: S608
    states = duckdb.sql(query).fetchall()
    assert states == [("run 1", "sealed"), ("run 2", "sealed")]
    assert spark.read.parquet(str(lake / "readings")).where("run = 'run 1'").count() > 0


def test_only_changed_runs_are_computed_again(copied: Lake, spark: SparkSession) -> None:
    runs, lake = copied
    before = {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")}
    assert [one.computed for one in build_lake(runs, lake, spark, silent)] == [False, False]
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")} == before
    part = next((runs[1] / "received").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    results = build_lake(runs, lake, spark, silent)
    assert [one.computed for one in results] == [False, True]
    assert results[1].summary is not None
    assert results[1].summary.verdict.outcome.value == "invalid"
    assert lake_hashes(lake, runs[1].name) == hashes(runs[1] / "tables")


def test_a_run_analysed_alone_is_not_computed_again(copied: Lake, spark: SparkSession) -> None:
    runs, lake = copied
    shutil.rmtree(lake)
    assert [one.computed for one in build_lake(runs, lake, spark, silent)] == [False, False]
    assert lake_hashes(lake, runs[0].name) == hashes(runs[0] / "tables")


def test_bad_runs_are_named_and_set_aside_and_the_others_are_unaffected(
    built: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    good = shutil.copytree(built[0][1], tmp_path / "good")
    expected = hashes(good / "tables")
    for made in ("summary.json", "analysis.json"):
        (good / made).unlink()
    torn = write_run(tmp_path, "torn", Tiny())
    (torn / "manifest.json").write_text("{")
    odd = write_run(tmp_path, "odd", Tiny())
    write_manifest(odd, replace(read_manifest(odd), experiment={"name": "tiny", "workload": "none"}))
    namesake = write_run(tmp_path, "namesake", Tiny())
    write_manifest(namesake, replace(read_manifest(namesake), run="run 2", tag=99))
    results = build_lake([torn, good, odd, namesake], tmp_path / "lake", spark, silent)
    assert [bool(one.fault) for one in results] == [True, False, True, True]
    assert "torn/manifest.json: cannot be read" in results[0].fault
    assert "experiment" in results[2].fault
    assert "namesake" in results[3].fault
    assert "good" in results[3].fault
    assert hashes(good / "tables") == expected


class PowerCut(BaseException):
    """Interrupts an analysis where no handler catches it."""


@pytest.mark.parametrize("renames", [3, 20])
def test_an_analysis_interrupted_at_any_rename_is_completed_by_the_next(
    built: Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Each rename completes a table: those of the run first, then those of the lake."""
    run = shutil.copytree(built[0][1], tmp_path / "run 2")
    shutil.rmtree(run / "tables")
    (run / "analysis.json").unlink()
    left = renames
    real = Directory.rename

    def rename(self: Directory, source: str, target: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise PowerCut
        real(self, source, target)

    monkeypatch.setattr(Directory, "rename", rename)
    with pytest.raises(PowerCut):
        build_lake([run], tmp_path / "lake", spark, silent)
    whole = hashes(built[0][1] / "tables")
    for table in [each for each in (run / "tables").iterdir() if not each.name.startswith(".")]:
        assert hashes(run / "tables")[table.name] == whole[table.name]
    assert not list((tmp_path / "lake").glob("runs/*/run=*"))
    monkeypatch.undo()
    build_lake([run], tmp_path / "lake", spark, silent)
    assert hashes(run / "tables") == whole
    assert lake_hashes(tmp_path / "lake", "run 2") == whole
    assert [path for path in (tmp_path / "lake").rglob(".*") if path.name != ".lock"] == []


def test_a_directory_with_other_files_is_not_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter.txt").touch()
    with pytest.raises(ConfigError, match="not a lake"):
        build_lake([], tmp_path / "documents", spark, silent)


def test_two_builds_never_write_one_lake_at_once(spark: SparkSession, tmp_path: Path) -> None:
    def inside(run_dir: Path, summary: object) -> object:
        with pytest.raises(ConfigError, match="another analysis"):
            build_lake([], tmp_path / "lake", spark, silent)
        return summary

    run = write_run(tmp_path, "one", Tiny())
    (result,) = build_lake([run], tmp_path / "lake", spark, silent, finish=inside)  # type: ignore[arg-type]
    assert result.computed


@pytest.mark.parametrize("name", ["plain", "a b=c/d%20", "50%", "[x]*?{y}:'\"#^\\", "é", "tab\there"])
def test_any_name_survives_escaping_in_a_partition(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "/" not in escaped(name)


def test_a_path_without_a_recording_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="not a recording"):
        analyze_verb([str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(ConfigError, match="not a Spark master"):
        analyze_verb([str(tmp_path / "a")], master="spark")
