"""Recordings, tables and a lake at URLs: as in directories, with an error that names a missing library."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.build import build_lake
from crescendo.pipeline.storage.hadoop import HadoopLocation
from many_runs import plain, write_run
from table_hashes import hashes
from tiny_recordings import silent


def test_tables_and_lake_at_urls_equal_those_in_directories(spark: SparkSession, tmp_path: Path) -> None:
    run = write_run(tmp_path / "here", "run", plain())
    there = shutil.copytree(run, tmp_path / "a path" / "run")
    build_lake([run], tmp_path / "here" / "lake", spark, silent)
    url, lake = f"file:{there}", f"file:{tmp_path}/a path/lake"
    assert [(one.computed, one.fault) for one in build_lake([url], lake, spark, silent)] == [(True, "")]
    assert hashes(there / "tables") == hashes(run / "tables")
    assert [(one.computed, one.fault) for one in build_lake([url], lake, spark, silent)] == [(False, "")]
    here = sorted(path.parent.relative_to(tmp_path / "here") for path in tmp_path.glob("here/lake/*/*/*/*.parquet"))
    assert here == sorted(
        path.parent.relative_to(tmp_path / "a path") for path in tmp_path.glob("a path/lake/*/*/*/*.parquet")
    )
    # No Hadoop checksum files from the driver, and no drafts.
    assert [path for path in (tmp_path / "a path" / "lake").rglob(".*") if "runs" in path.parts] == []


def test_s3a_without_its_library_is_refused_with_the_cure(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"S3AFileSystem not found; write spark\.jars\.packages .*hadoop-aws:3\."):
        HadoopLocation("s3a://bucket/run", spark, tmp_path)
    with pytest.raises(ConfigError, match=r"No FileSystem for scheme.*must be on Spark's class path"):
        HadoopLocation("nowhere://bucket/run", spark, tmp_path)
