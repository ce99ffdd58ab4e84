"""Where is the archive of Spark's classes, which spares the next JVM parsing and verifying them?

Java can map the classes of an earlier run from one file (class data sharing), which saves a third of the time to the
first result. The file belongs to one Java, one PySpark and one Python environment, and lives in that environment. The
JVM rejects an archive that does not match and starts without it. `rehearsal` creates it, `session` uses it.
"""

import os
import sys
import zlib
from pathlib import Path

import pyspark


def archive_path() -> Path | None:
    """Where the archive is, or would be; None when it is unknown which Java will run."""
    try:
        java = (Path(os.environ["JAVA_HOME"]) / "release").read_bytes()
    except (KeyError, OSError):
        return None
    folder = Path(sys.prefix) / "share" / "crescendo"
    return folder / f"spark-{pyspark.__version__}-{zlib.crc32(java):08x}.jsa"


def archive_options() -> tuple[str, ...]:
    """JVM options that use the archive, if it exists."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}",) if path is not None and path.is_file() else ()
