"""How does a program that has its own Spark session read a run? Computes nothing."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from crescendo.pipeline.source.ingest import frame_of, readable_recording


def recorded_frame(spark: SparkSession, run_dir: Path, table: str) -> DataFrame:
    """The recorded rows of one table, from the intact parts."""
    return frame_of(spark, readable_recording(run_dir), table)


def computed_frame(spark: SparkSession, files: list[Path]) -> DataFrame:
    """One table of the analysis."""
    return spark.read.parquet(*(str(file.resolve()) for file in files))
