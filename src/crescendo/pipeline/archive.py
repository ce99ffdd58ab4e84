"""Which classes will Spark load, so that the next JVM need not parse and verify them again?

Java can map the classes of an earlier run from one file (class data sharing). The file is made once, by letting a
session do a job and exit, and lives with the Python environment it belongs to. The JVM itself refuses a file that
does not fit its version or its jars, and then starts as if there were none.
"""

import sys
from pathlib import Path

import pyspark


def archive_path() -> Path:
    """Where the archive of this environment is, or would be."""
    return Path(sys.prefix) / "share" / "crescendo" / f"spark-{pyspark.__version__}.jsa"


def archive_options() -> tuple[str, ...]:
    """JVM options that use the archive, if there is one."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if path.is_file() else ()
