"""Which rows of a recording can the analysis use?

Opens the intact parts of each table with the declared schema, so that Spark infers nothing and a wrong type fails at
once. A part with a correct hash but an unreadable Parquet footer counts as damaged. Repairs nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from crescendo.pipeline.source.host_times import on_conductors_clock
from crescendo.pipeline.source.local_rows import given_rows, read_here
from crescendo.pipeline.spark.evaluation import is_interpreted
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.pipeline.storage.remote_recording import faults_of, fetch_manifest, footer_of
from crescendo.record.manifest import PartRecord
from crescendo.record.reader import Recording, open_recording
from crescendo.record.schema import RECEIVED, SENT, SETTLED, TABLES, arrow_schema, spark_ddl

ONE_PARTITION_ROWS = 1_000_000
"""Up to this number of rows, a table is read into one partition."""

_GLOB_PATHS = "__globPaths__"  # Spark's own option; escaping does not help, because its pattern matcher fails on colons


@dataclass(frozen=True)
class Frames:
    """The three tables of messages."""

    sent: DataFrame
    settled: DataFrame
    received: DataFrame


@dataclass(frozen=True)
class LocatedRecording(Recording):
    """A recording and its location. For a recording at a URL, `path` holds only its manifest and journals."""

    location: Location = field(kw_only=True)

    def files(self, table: str) -> list[str]:
        """The intact parts of one table, as paths or URLs for Spark."""
        return [self.location.spark_path(part.path) for part in self.parts if part.table == table]

    def local_files(self, table: str) -> list[str]:
        """The same on this machine; only for tables that do not grow with the number of messages."""
        return [str(self.location.local_file(part.path)) for part in self.parts if part.table == table]


def readable_recording(run_dir: Path) -> LocatedRecording:
    """The recording, with every unreadable part moved to `damaged`."""
    found = open_recording(run_dir)
    faults = {part.path: _fault(run_dir / part.path, part) for part in found.parts}
    return _located(run_dir, found, found.damaged | faults, Directory(run_dir))


def remote_recording(location: HadoopLocation, scratch_dir: Path, spark: SparkSession) -> LocatedRecording:
    """The same for a recording at a URL."""
    manifest, parts = fetch_manifest(location, scratch_dir)
    faults = faults_of(location, parts, spark)
    for part in parts:
        if part.path not in faults:
            faults[part.path] = _remote_fault(location, part)
    return _located(scratch_dir, Recording(scratch_dir, manifest, parts, {}), faults, location)


def without_unreadable(recording: LocatedRecording) -> LocatedRecording:
    """Read every part to its end and leave out those that fail. Expensive, so only after a job has failed."""
    faults = dict(recording.damaged)
    for part in recording.parts:
        try:
            for _ in pq.ParquetFile(recording.location.local_file(part.path)).iter_batches():
                pass
        except (pa.ArrowException, OSError) as err:
            faults[part.path] = f"cannot be read to its end: {str(err).splitlines()[0]}"
    return _located(recording.path, recording, faults, recording.location)


def frames_of(spark: SparkSession, recording: LocatedRecording) -> Frames:
    return Frames(*(frame_of(spark, recording, table) for table in (SENT, SETTLED, RECEIVED)))


def frame_of(spark: SparkSession, recording: LocatedRecording, table: str) -> DataFrame:
    """The rows in the intact parts of one table."""
    frame = _rows_of(spark, recording, table)
    frame = on_conductors_clock(frame, table, recording.manifest)
    # With one partition Spark aggregates without a shuffle, and a short run spends its time on stages, not on rows.
    return frame.coalesce(1) if recording.rows(table) <= ONE_PARTITION_ROWS else frame


def _rows_of(spark: SparkSession, recording: LocatedRecording, table: str) -> DataFrame:
    if is_interpreted(sum(part.rows for part in recording.parts)):
        return given_rows(spark, read_here(recording.local_files(table), arrow_schema(table)))
    return read_parquet(spark, spark_ddl(table), recording.files(table))


def read_parquet(spark: SparkSession, schema: str, files: list[str]) -> DataFrame:
    """Read exactly these files, without expanding patterns in their names. No files give an empty frame."""
    if not files:
        # Not createDataFrame: that would start Python workers to read nothing.
        columns = [column.split() for column in schema.split(", ")]
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns))
    return spark.read.schema(schema).option(_GLOB_PATHS, "false").parquet(*files)


def _located(path: Path, found: Recording, faults: dict[str, str], location: Location) -> LocatedRecording:
    damaged = {name: fault for name, fault in faults.items() if fault}
    sound = [part for part in found.parts if part.path not in damaged]
    return LocatedRecording(path, found.manifest, sound, damaged, location=location)


def _fault(file: Path, part: PartRecord) -> str:
    try:
        footer = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as err:
        return f"is not readable as Parquet: {err}"
    return _footer_fault(footer, part)


def _remote_fault(location: HadoopLocation, part: PartRecord) -> str:
    try:
        return _footer_fault(footer_of(location, part.path), part)
    except (pa.ArrowException, OSError) as err:
        return f"is not readable as Parquet: {err}"


def _footer_fault(footer: pq.ParquetFile, part: PartRecord) -> str:
    if part.table not in TABLES:
        return f"belongs to an unknown table {part.table!r}"
    if not footer.schema_arrow.equals(arrow_schema(part.table)):
        return "does not have the columns of its table"
    return "" if footer.metadata.num_rows == part.rows else f"has {footer.metadata.num_rows} rows, not {part.rows}"
