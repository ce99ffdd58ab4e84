"""Which rows of a recording can be computed with?

Opens the sound parts of each table with the declared schema, so that Spark infers nothing and a wrong type shows at
once. A part whose hash is right but whose Parquet footer is not readable counts as damaged. Repairs nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.pipeline.storage.locations import Directory, Location
from crescendo.pipeline.storage.remote_recording import faults_of, fetch_manifest, footer_of
from crescendo.record.manifest import PartRecord
from crescendo.record.reader import Recording, open_recording
from crescendo.record.schema import RECEIVED, SENT, SETTLED, TABLES, arrow_schema, spark_ddl

_ONE_PIECE_ROWS = 1_000_000
_GLOB_PATHS = "__globPaths__"  # Spark's own switch; escaping is no way out, its pattern matcher stumbles over colons


@dataclass(frozen=True)
class Frames:
    """The three tables that messages are in."""

    sent: DataFrame
    settled: DataFrame
    received: DataFrame


@dataclass(frozen=True)
class LocatedRecording(Recording):
    """A recording and where it lies. For one at a URL, `path` holds no more than its manifest and its journals."""

    place: Location = field(kw_only=True)

    def files(self, table: str) -> list[str]:
        """The sound parts of one table, as Spark calls them."""
        return [self.place.at(part.path) for part in self.parts if part.table == table]

    def local_files(self, table: str) -> list[str]:
        """The same on this machine; only for tables that do not grow with messages."""
        return [str(self.place.fetched(part.path)) for part in self.parts if part.table == table]


def readable_recording(run_dir: Path) -> LocatedRecording:
    """The recording, with every part that cannot be read moved to the damaged ones."""
    found = open_recording(run_dir)
    faults = {part.path: _fault(run_dir / part.path, part) for part in found.parts}
    return _placed(run_dir, found, found.damaged | faults, Directory(run_dir))


def remote_recording(place: HadoopLocation, desk: Path, spark: SparkSession) -> LocatedRecording:
    """The same for a recording at a URL."""
    manifest, parts = fetch_manifest(place, desk)
    faults = faults_of(place, parts, spark)
    for part in parts:
        if part.path not in faults:
            faults[part.path] = _remote_fault(place, part)
    return _placed(desk, Recording(desk, manifest, parts, {}), faults, place)


def without_unreadable(recording: LocatedRecording) -> LocatedRecording:
    """Read every part to its end and take out those that cannot be: dear, so only for when a job stumbled over one."""
    faults = dict(recording.damaged)
    for part in recording.parts:
        try:
            for _ in pq.ParquetFile(recording.place.fetched(part.path)).iter_batches():
                pass
        except (pa.ArrowException, OSError) as err:
            faults[part.path] = f"cannot be read to its end: {str(err).splitlines()[0]}"
    return _placed(recording.path, recording, faults, recording.place)


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


def _placed(path: Path, found: Recording, faults: dict[str, str], place: Location) -> LocatedRecording:
    damaged = {name: fault for name, fault in faults.items() if fault}
    sound = [part for part in found.parts if part.path not in damaged]
    return LocatedRecording(path, found.manifest, sound, damaged, place=place)


def _fault(file: Path, part: PartRecord) -> str:
    try:
        footer = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as err:
        return f"is not readable as Parquet: {err}"
    return _footer_fault(footer, part)


def _remote_fault(place: HadoopLocation, part: PartRecord) -> str:
    try:
        return _footer_fault(footer_of(place, part.path), part)
    except (pa.ArrowException, OSError) as err:
        return f"is not readable as Parquet: {err}"


def _footer_fault(footer: pq.ParquetFile, part: PartRecord) -> str:
    if part.table not in TABLES:
        return f"is of a table {part.table!r}, and there is none of that name"
    if not footer.schema_arrow.equals(arrow_schema(part.table)):
        return "does not have the columns of its table"
    return "" if footer.metadata.num_rows == part.rows else f"has {footer.metadata.num_rows} rows, not {part.rows}"
