"""Is a recording at a URL complete and intact?

Makes the checks that `record.reader` makes on a directory: size and hash of every part. Spark hashes the parts where
they are and returns one row per part; the driver reads only their footers. Repairs nothing.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from crescendo.model.errors import ConfigError
from crescendo.pipeline.storage.hadoop import HadoopLocation
from crescendo.record.manifest import JOURNAL, MANIFEST, Manifest, PartRecord, State, read_manifest
from crescendo.record.reader import journalled_parts

_GLOB_PATHS = "__globPaths__"
_FOOTER_GUESS = 64 * 1024
MAX_FOOTER_BYTES = 16 * 2**20
_MAGIC = b"PAR1"


def fetch_manifest(location: HadoopLocation, scratch_dir: Path) -> tuple[Manifest, list[PartRecord]]:
    """The manifest, and the parts that it or the journals list. Downloads them to `scratch_dir`."""
    if location.read(MANIFEST) is None:
        raise ConfigError(f"{location}: not a recording, it has no {MANIFEST}")
    try:
        manifest = read_manifest(scratch_dir)
    except ConfigError as err:
        raise ConfigError(str(err).replace(str(scratch_dir), str(location))) from err
    if manifest.state is State.SEALED:
        return manifest, manifest.files
    for name in location.names(JOURNAL):
        location.local_file(f"{JOURNAL}/{name}")
    return manifest, list(journalled_parts(scratch_dir))


def faults_of(location: HadoopLocation, parts: list[PartRecord], spark: SparkSession) -> dict[str, str]:
    """Path of a part -> what is wrong with its size or its hash."""
    faults: dict[str, str] = {}
    for part in parts:
        if part.path.startswith("/") or ".." in part.path.split("/"):
            faults[part.path] = "lies outside the recording"
            continue
        octets = location.size_bytes(part.path)
        if octets is None:
            faults[part.path] = "is missing"
        elif octets != part.octets:
            faults[part.path] = f"has {octets} bytes, not {part.octets}"
    sound = {part.path: part for part in parts if part.path not in faults}
    hashes = _hashes([location.spark_path(path) for path in sound], spark)
    for path, part in sound.items():
        if hashes.get(_tail_of(path)) != part.sha256:
            faults[path] = "does not match its hash"
    return faults


def footer_of(location: HadoopLocation, path: str) -> pq.ParquetFile:
    """The footer of a part, opened as a Parquet file without pages: its rows cannot be read."""
    tail = location.tail(path, _FOOTER_GUESS)
    length = int.from_bytes(tail[-8:-4], "little") + 8 if tail.endswith(_MAGIC) else 0
    if not 12 <= length <= MAX_FOOTER_BYTES:
        raise pa.ArrowInvalid("it has no footer")
    if length > len(tail):
        tail = location.tail(path, length)
    return pq.ParquetFile(pa.BufferReader(_MAGIC + tail[-length:]))


def _hashes(urls: list[str], spark: SparkSession) -> dict[str, str]:
    if not urls:
        return {}
    parts = spark.read.format("binaryFile").option(_GLOB_PATHS, "false").load(urls)
    rows = parts.select("path", F.sha2("content", 256).alias("sha256")).collect()  # one row per part, not per message
    return {_tail_of(str(row["path"])): str(row["sha256"]) for row in rows}


def _tail_of(path: str) -> str:
    """Table and file name of a part, however Spark writes the URL before them."""
    return "/".join(path.split("/")[-2:])
