"""Which runs does a lake on a Hadoop file system or an object store have?

One Spark query over its table of runs: per-file requests to a store would take a round trip each. Reads only.
"""

import tempfile
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.pipeline.lake.lake import COMPACTED, RUNS, LakeEntry, entry_of, unescaped
from crescendo.pipeline.spark.session import close_session, open_session, running_session
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import LAKE_MARKER

_COLUMNS = ("path", "fingerprint", "full", "tables", "manifest", "summary")


def remote_entries(url: str) -> list[LakeEntry]:
    """Every run of the lake at a URL. Raises ConfigError if there is no lake."""
    shared = running_session() is not None
    spark = open_session()
    try:
        with tempfile.TemporaryDirectory(prefix="crescendo-lake-") as scratch:
            location = HadoopLocation(url, spark, Path(scratch))
            marker = location.read(LAKE_MARKER)
            if marker is None:
                raise ConfigError(f"{url}: not a lake, it has no {LAKE_MARKER}")
            of_run = ["run"] if marker == COMPACTED else []  # elsewhere, it is in the path
            rows = (
                spark.read.option("recursiveFileLookup", "true")
                .parquet(location.spark_path(RUNS))
                .select(*_COLUMNS, *of_run, F.input_file_name().alias("file"))
                .collect()
            )
    finally:
        if not shared:
            close_session(spark)
    return [
        entry_of(_part(row["file"], "experiment"), row["run"] if of_run else _part(row["file"], "run"), row.asDict())
        for row in rows
    ]


def _part(file: str, name: str) -> str:
    """The value of a partition in the path of a file, which Spark escapes once more."""
    folder = next(part for part in file.split("/") if part.startswith(f"{name}="))
    return unescaped(unquote(folder.partition("=")[2]))
