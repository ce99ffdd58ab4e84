"""A lake at a URL, as on HDFS or an object store, has the same history as the directory that it lies in."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.history.run_history import all_runs
from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.compacted import compact_lake
from crescendo.pipeline.lake.lake import Lake, LakeEntry
from crescendo.pipeline.receipts import Receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import read_summary

SAMPLE = Path(__file__).parents[1] / "samples" / "version-0.1" / "baseline"


def test_a_lake_at_a_url_is_read_with_one_query(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(Directory(tmp_path / "lake"))
    lake.open()
    for name in ("first", "a name: 100 % odd"):
        entry = LakeEntry("quick = 1", name, "", Receipt("", True, []), read_manifest(SAMPLE), read_summary(SAMPLE))
        lake.add_run(entry, Directory(SAMPLE))
    local = sorted(all_runs(tmp_path / "lake", ["rate"]), key=lambda run: run.name)
    remote = sorted(all_runs(f"file://{tmp_path}/lake", ["rate"]), key=lambda run: run.name)
    assert remote == local
    compact_lake(tmp_path / "lake", tmp_path / "compacted", lambda _: None)
    compacted = all_runs(f"file://{tmp_path}/compacted", ["rate"])
    assert sorted(compacted, key=lambda run: run.name) == local
    assert [run.name for run in remote] == ["a name: 100 % odd", "first"]
    with pytest.raises(ConfigError, match="not a lake"):
        all_runs(f"file://{tmp_path}", ["rate"])
