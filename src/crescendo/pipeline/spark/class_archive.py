"""Where is the archive of Spark's classes, which spares the next JVM parsing and verifying them?

Java can map the classes of an earlier run from one file (class data sharing), which saves a third of the time to the
first result. The file belongs to one Java, one PySpark and one place of the Python environment, and lives in that
environment: the JVM rejects an archive of classes that were elsewhere, so a copied environment has none. `rehearsal`
creates it, `jvm_start` uses it. Imports nothing of PySpark.
"""

import os
import sys
import zlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Java 17 moves an archive to a random address, and writes all its 180 MB to do so: half a second of CPU time."""


def archive_path() -> Path | None:
    """Where the archive is, or would be; None when it is unknown which Java will run."""
    try:
        java = (Path(os.environ["JAVA_HOME"]) / "release").read_bytes()
    except (KeyError, OSError):
        return None
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return None
    place = str(Path(package.origin).resolve()).encode()
    name = f"spark-{version('pyspark')}-{zlib.crc32(java + place):08x}.jsa"
    return Path(sys.prefix) / "share" / "crescendo" / name


def archive_options() -> tuple[str, ...]:
    """JVM options that use the archive, if it exists."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}", *_AT_ITS_ADDRESS) if path is not None and path.is_file() else ()
