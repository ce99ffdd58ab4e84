"""Which rows of a recording can be computed with?

Opens the sound parts of each table with the declared schema, so that Spark infers nothing and a wrong type shows at
once. A part whose hash is right but whose Parquet footer is not readable counts as damaged. Repairs nothing.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from crescendo.record.manifest import Part
from crescendo.record.reader import Recording, open_recording
from crescendo.record.schema import RECEIVED, SENT, SETTLED, arrow_schema, spark_ddl

_ONE_PIECE_ROWS = 1_000_000
_GLOB_PATHS = "__globPaths__"  # Spark's own switch; escaping is no way out, its pattern matcher stumbles over colons


@dataclass(frozen=True)
class Frames:
    """The three tables that messages are in."""

    sent: DataFrame
    settled: DataFrame
    received: DataFrame


def readable_recording(run_dir: Path) -> Recording:
    """The recording, with every part that cannot be read moved to the damaged ones."""
    recording = open_recording(run_dir)
    faults = {part.path: _fault(run_dir / part.path, part) for part in recording.parts}
    return replace(
        recording,
        parts=[part for part in recording.parts if not faults[part.path]],
        damaged=recording.damaged | {path: fault for path, fault in faults.items() if fault},
    )


def frames_of(spark: SparkSession, recording: Recording) -> Frames:
    return Frames(*(frame_of(spark, recording, table) for table in (SENT, SETTLED, RECEIVED)))


def frame_of(spark: SparkSession, recording: Recording, table: str) -> DataFrame:
    """The sound rows of one table."""
    frame = read_parquet(spark, spark_ddl(table), recording.files(table))
    # In one piece Spark aggregates without a shuffle, and a short run spends its time on stages, not on rows.
    return frame.coalesce(1) if recording.rows(table) <= _ONE_PIECE_ROWS else frame


def read_parquet(spark: SparkSession, schema: str, files: list[str]) -> DataFrame:
    """Read exactly these files; names are names, not patterns. No files give an empty frame."""
    if not files:
        # Not createDataFrame: that would start Python workers to read nothing.
        columns = [column.split() for column in schema.split(", ")]
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns))
    return spark.read.schema(schema).option(_GLOB_PATHS, "false").parquet(*files)


def _fault(file: Path, part: Part) -> str:
    try:
        footer = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as err:
        return f"is not readable as Parquet: {err}"
    if not footer.schema_arrow.equals(arrow_schema(part.table)):
        return "does not have the columns of its table"
    return "" if footer.metadata.num_rows == part.rows else f"has {footer.metadata.num_rows} rows, not {part.rows}"
