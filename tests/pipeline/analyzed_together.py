"""Many small recordings, analysed in one call: they share the cost of a job, and get the tables of single analyses.

That they are the same is shown by test_joint_scan.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.pipeline.lake.build import build_lake
from crescendo.record.manifest import read_manifest, write_manifest
from crescendo.record.summary import Summary, read_summary
from tiny_recordings import Tiny, silent


def analyzed_together(
    recordings: Mapping[str, Callable[[Path], Path]], spark: SparkSession, folder: Path
) -> dict[str, Summary]:
    """Write each recording into a directory of its name, analyse all of them, and return their summaries."""
    runs = {name: write(folder / name) for name, write in recordings.items()}
    for name, run in runs.items():  # those of one name would be analysed one by one
        write_manifest(run, replace(read_manifest(run), run=name))
    faults = [one.fault for one in build_lake(list(runs.values()), folder / "lake", spark, silent) if one.fault]
    assert not faults
    return {name: read_summary(run) for name, run in runs.items()}


@dataclass(frozen=True)
class Analysed:
    """Recordings that were analysed together: each has a directory of its name, and a summary."""

    folder: Path
    summaries: dict[str, Summary]


class TinyRecordings:
    """The recordings of a module, each made by a function."""

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[], Tiny]] = {}

    def add(self, make: Callable[[], Tiny]) -> Callable[[], Tiny]:
        """Have what this function makes analysed with the others, under its name."""
        self._makers[make.__name__] = make
        return make

    def analyze(self, spark: SparkSession, folder: Path) -> Analysed:
        recordings = {name: lambda run_dir, make=make: make().write(run_dir) for name, make in self._makers.items()}
        return Analysed(folder, analyzed_together(recordings, spark, folder))
