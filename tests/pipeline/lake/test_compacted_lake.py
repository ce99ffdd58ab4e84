"""A compacted copy of a lake has the same runs and rows, in a few files."""

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from crescendo.cli.old_runs import compact as compact_verb
from crescendo.history.run_history import all_runs
from crescendo.model.errors import ConfigError
from crescendo.pipeline.compare.runs import run_group
from crescendo.pipeline.lake import compacted
from crescendo.pipeline.lake.compacted import compact_lake
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.receipts import Receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import TABLES_DIR, read_summary
from tiny_recordings import silent

SAMPLE = Path(__file__).parents[2] / "samples" / "version-0.1" / "baseline"
TABLES = ["latency", "throughput"]
EXPERIMENTS = ("nightly", "odd = 100 %")
RUNS = 7


def add_run(lake: Path, experiment: str, number: int, source: Path = SAMPLE) -> None:
    manifest = read_manifest(SAMPLE)
    entry = LakeEntry(
        experiment, f"run {number}", f"runs/{number}", Receipt("", True, TABLES),
        replace(manifest, started_ns=manifest.started_ns + number), read_summary(SAMPLE),
    )  # fmt: skip
    Lake(Directory(lake)).add_run(entry, Directory(source))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments of seven runs; the last run of each has a column that no other has."""
    at = tmp_path_factory.mktemp("lake") / "lake"
    Lake(Directory(at)).open()
    newer = at.parent / "newer"
    shutil.copytree(SAMPLE / TABLES_DIR, newer / TABLES_DIR)
    for file in (newer / TABLES_DIR / "latency").glob("*.parquet"):
        rows = pq.read_table(file)
        pq.write_table(rows.append_column("new", pa.array([1] * rows.num_rows)), file)
    for experiment in EXPERIMENTS:
        for number in range(RUNS):
            add_run(at, experiment, number, newer if number == RUNS - 1 else SAMPLE)
    return at


def rows_by_run(lake: Path, depth: str, table: str) -> list[tuple[object, ...]]:
    found = duckdb.read_parquet(f"{lake}/{table}/{depth}/*.parquet", union_by_name=True, hive_partitioning=True)
    counted = found.aggregate("experiment, run, count(*) as rows").order("experiment, run").fetchall()
    return [tuple(row) for row in counted]


def test_every_run_and_every_row_is_there_in_a_file_per_table_and_experiment(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    assert compact_verb(lake, copy) == 0
    assert f"{2 * RUNS} run(s), {2 * RUNS * 3} files in 6" in capsys.readouterr().out
    assert len(list(copy.rglob("*.parquet"))) == 6
    for table in (*TABLES, "runs"):
        before = rows_by_run(lake, "*/*", table)
        assert len(before) == 2 * RUNS
        assert rows_by_run(copy, "*", table) == before
    assert all_runs(copy, ["rate"]) == all_runs(lake, ["rate"])
    new = duckdb.read_parquet(f"{copy}/latency/*/*.parquet").filter("new = 1")
    assert new.project("run").distinct().fetchall() == [(f"run {RUNS - 1}",)]


def test_many_runs_become_several_parts(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "_MAX_FILES", 3)
    assert compact_lake(lake, tmp_path / "copy", silent).files == 2 * 3 * 3  # 3 + 3 + 1 runs
    assert all_runs(tmp_path / "copy", ["rate"]) == all_runs(lake, ["rate"])


def test_a_copy_is_replaced_as_a_whole(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown, copy = tmp_path / "lake", tmp_path / "copy"
    shutil.copytree(lake, grown)
    compact_lake(grown, copy, silent)
    add_run(grown, "nightly", RUNS)

    def interrupted(report: str) -> None:
        if "throughput" in report:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact_lake(grown, copy, interrupted)
    assert len(all_runs(copy, ["rate"])) == 2 * RUNS  # the earlier one
    compact_lake(grown, copy, silent)
    assert len(all_runs(copy, ["rate"])) == 2 * RUNS + 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "lake"]


def test_a_copy_is_never_written_and_what_needs_the_lake_says_so(lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    compact_lake(lake, copy, silent)
    with pytest.raises(ConfigError, match="only read"):
        Lake(Directory(copy)).open()
    with pytest.raises(ConfigError, match="compacted copy already"):
        compact_lake(copy, tmp_path / "other", silent)
    with pytest.raises(ConfigError, match="name the lake it was made of"):
        run_group("nightly", copy)
    with pytest.raises(ConfigError, match="not a compacted lake"):
        compact_lake(lake, lake, silent)
    with pytest.raises(ConfigError, match="not a lake"):
        compact_lake(tmp_path, copy, silent)
