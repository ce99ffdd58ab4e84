"""Many small recordings, analysed in one call: they share the cost of a job, and get the tables of single analyses.

That they are the same is shown by test_joint_scan.py.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from crescendo.pipeline.lake.build import build_lake
from crescendo.record.summary import Summary, read_summary
from tiny_recordings import silent


def analyzed_together(
    recordings: Mapping[str, Callable[[Path], Path]], spark: SparkSession, folder: Path
) -> dict[str, Summary]:
    """Write each recording into a directory of its name, analyse all of them, and return their summaries."""
    runs = {name: write(folder / name) for name, write in recordings.items()}
    faults = [one.fault for one in build_lake(list(runs.values()), folder / "lake", spark, silent) if one.fault]
    assert not faults
    return {name: read_summary(run) for name, run in runs.items()}
