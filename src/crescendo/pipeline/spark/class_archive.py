"""Which classes will Spark load, so that the next JVM need not parse and verify them again?

Java can map the classes of an earlier run from one file (class data sharing), which saves a third of the time to the
first result. The file belongs to one Java, one PySpark and one Python environment, and lives in the latter; the JVM
refuses one that does not fit, and then starts as if there were none. Made by `rehearsal`, used by `session`.
"""

import os
import sys
import zlib
from pathlib import Path

import pyspark


def archive_path() -> Path | None:
    """Where the archive is, or would be; None when nothing tells which Java will run."""
    try:
        java = (Path(os.environ["JAVA_HOME"]) / "release").read_bytes()
    except (KeyError, OSError):
        return None
    folder = Path(sys.prefix) / "share" / "crescendo"
    return folder / f"spark-{pyspark.__version__}-{zlib.crc32(java):08x}.jsa"


def archive_options() -> tuple[str, ...]:
    """JVM options that use the archive, if there is one."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}",) if path is not None and path.is_file() else ()
