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

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.pipeline.archive import archive_options

_LOG = "spark.log"
_EXIT_SECONDS = 120  # a JVM that writes a class archive takes its time
_JAVA = (
    "-XX:+UseSerialGC",  # the heap is small and the cores are few: collector threads would only compete
    "-XX:MetaspaceSize=256m",  # Spark loads classes by the thousand: no full collection on the way there
    "-XX:-UsePerfData",  # no file in /tmp for every JVM
    # The optimising compiler only for what is hot for long: a short run then pays for less compilation, and the loops
    # over millions of messages still get it.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
)
_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # it lives for a third of a second
_home: Path | None = None  # there is one Spark context in a process, so there is one private directory


def open_session(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str = "2g",
    java_options: tuple[str, ...] = (),
) -> SparkSession:
    """Start Spark. Without a master it runs in this machine's cores and listens on the loopback address only.

    A process has one Spark: while it runs, everybody who asks gets it.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _end_jvm()  # of a session that was stopped, but not closed
    home = _private_directory()
    # PySpark prints every failed query as JSON to stderr besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    conf = _configuration(home, master, cores or os.cpu_count() or 1, memory, java_options)
    try:
        with (home / _LOG).open("wb") as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except (PySparkException, Py4JError) as err:
        said = _complaint(home)
        _end_jvm()
        raise ConfigError(f"Spark does not start; check the master and JAVA_HOME. It said: {said}") from err


def close_session(spark: SparkSession) -> None:
    """Stop Spark, wait until its process is gone, and remove its files."""
    if SparkContext._active_spark_context is not None:
        spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    # PySpark would keep the JVM until this process ends; nothing may be left behind when a run is over.
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
    _remove_home()


def _private_directory() -> Path:
    global _home  # noqa: PLW0603
    _home = Path(tempfile.mkdtemp(prefix="crescendo-spark-"))
    atexit.register(_remove_home)
    return _home


def _configuration(home: Path, master: str | None, cores: int, memory: str, java_options: tuple[str, ...]) -> SparkConf:
    log4j = Path(__file__).with_name("log4j2.properties")
    java = (
        *_JAVA,
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
        # Otherwise every column expression sends its stack trace to the JVM, twice, in case it might fail.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
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


def _complaint(home: Path) -> str:
    """What the JVM said first: the lines after it are where, not what."""
    lines = (home / _LOG).read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip() and not line.startswith("WARNING")), "nothing")


def _remove_home() -> None:
    global _home  # noqa: PLW0603
    if _home is not None:
        shutil.rmtree(_home, ignore_errors=True)
        _home = None
    atexit.unregister(_remove_home)
