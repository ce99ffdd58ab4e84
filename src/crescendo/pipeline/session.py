"""How does Spark start, quietly and quickly?

One local session by default, or any cluster by its master URL. Everything the JVM prints goes to a file in a private
directory, which disappears with the session. Every setting below has its reason and its measurement in
docs/pipeline.md. Finds no Java and installs none: that is the caller's business.
"""

import atexit
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.pipeline.archive import archive_options

_LOG = "spark.log"
_EXIT_SECONDS = 30
_QUICK_START = (
    "-XX:+UseSerialGC",  # the heap is small and the cores are few: collector threads would only compete
    "-XX:-UsePerfData",  # no file in /tmp for every JVM
    "-Xshare:auto",
)
_home: Path | None = None  # there is one Spark context in a process, so there is one private directory


def open_session(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str = "2g",
    java_options: tuple[str, ...] = (),
) -> SparkSession:
    """Start Spark. Without a master it runs in this machine's cores and listens on the loopback address only."""
    global _home  # noqa: PLW0603
    if _home is not None:
        raise RuntimeError("a session is open already; close it first")
    _home = Path(tempfile.mkdtemp(prefix="crescendo-spark-"))
    atexit.register(_remove_home)
    # PySpark prints every failed query as JSON to stderr besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    conf = _configuration(_home, master, cores or os.cpu_count() or 1, memory, java_options)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")
    with (_home / _LOG).open("wb") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as err:
            said = _last_words(_home)
            _remove_home()
            raise ConfigError(f"Spark does not start; check JAVA_HOME (Java 17 or later). It said: {said}") from err
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def close_session(spark: SparkSession) -> None:
    """Stop Spark, wait until its process is gone, and remove its files."""
    gateway: Any = SparkContext._gateway
    spark.stop()
    # PySpark would keep the JVM until this process ends; nothing may be left behind when a run is over.
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    _remove_home()


def _configuration(home: Path, master: str | None, cores: int, memory: str, java_options: tuple[str, ...]) -> SparkConf:
    log4j = Path(__file__).with_name("log4j2.properties")
    java = (
        *_QUICK_START,
        *archive_options(),
        f"-Djava.io.tmpdir={home}",
        f"-Dlog4j2.configurationFile=file:{log4j}",
        *java_options,
    )
    settings = {
        "spark.app.name": "crescendo",
        "spark.master": master or f"local[{cores}]",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # Recordings are zstd, so that library is loaded anyway; a second codec would be a second native library.
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.io.compression.codec": "zstd",
        # Tables are written beside their place and renamed when whole, so the committer need not do it too.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if master is None or master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # What is shuffled are counts, not messages: one partition a core, and nothing to adapt.
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.adaptive.enabled": "false",
        }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _last_words(home: Path) -> str:
    lines = (home / _LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "nothing"


def _remove_home() -> None:
    global _home  # noqa: PLW0603
    if _home is not None:
        shutil.rmtree(_home, ignore_errors=True)
        _home = None
    atexit.unregister(_remove_home)
