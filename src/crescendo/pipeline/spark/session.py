"""How does Spark start, quietly and quickly?

One local session by default, or any cluster by its master URL. Everything the JVM prints goes to a file in a private
directory, which disappears with the session. What Spark is told is in `settings`. Finds no Java and installs none: that
is the caller's business.
"""

import atexit
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.class_archive import archive_options
from crescendo.pipeline.spark.settings import check_master, in_one_process, on_this_machine, settings_for

_LOG = "spark.log"
_HOME = "crescendo-spark-"
_EXIT_SECONDS = 120  # a JVM that writes a class archive takes its time
_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # it lives for a third of a second
_home: Path | None = None  # there is one Spark context in a process, so there is one private directory


def open_session(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str | None = None,
    java_options: tuple[str, ...] = (),
) -> SparkSession:
    """Start Spark. Without a master it runs in this machine's cores and listens on the loopback address only.

    A process has one Spark: while it runs, everybody who asks gets it.
    """
    if master is not None:
        check_master(master)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _end_jvm()  # of a session that was stopped, but not closed
    home = _private_directory()
    # PySpark prints every failed query as JSON to stderr besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    # The class archive was made by one JVM that does everything; others load other classes.
    archive = archive_options() if in_one_process(master) else ()
    options = (*archive, *java_options)
    settings = settings_for(master, cores=cores or os.cpu_count() or 1, memory=memory, home=home, java_options=options)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        with (home / _LOG).open("wb") as log, _surroundings(home, master):
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except (PySparkException, Py4JError) as err:
        said = _complaint(home)
        _end_jvm()
        raise ConfigError(f"Spark does not start; check the master and JAVA_HOME. It said: {said}") from err


def close_session(spark: SparkSession, *, at_once: bool = False) -> None:
    """Stop Spark, wait until its process is gone, and remove its files.

    At once, and so for whoever was interrupted: what it works on is wanted by nobody, and what it wrote is whole or
    not there.
    """
    if at_once or isinstance(sys.exc_info()[1], KeyboardInterrupt):
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # of calls under way it would print how each one broke
        if SparkContext._gateway is not None:
            SparkContext._gateway.proc.kill()
        SparkContext._active_spark_context = None
    elif SparkContext._active_spark_context is not None:
        spark.stop()
    _end_jvm()


@contextmanager
def _surroundings(home: Path, master: str | None) -> Iterator[None]:
    """The environment that a JVM on this machine is started in; it is put back afterwards."""
    chosen = {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine(master) else {}
    if master is not None and master.startswith("local-cluster"):
        # Its workers keep files of every executor in SPARK_HOME, and nothing tells them not to.
        chosen["SPARK_HOME"] = str(_second_home(home / "spark"))
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _second_home(folder: Path) -> Path:
    """A directory that looks like Spark's, and in which what is new belongs to us."""
    folder.mkdir()
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


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
    _sweep(Path(tempfile.gettempdir()))
    _home = Path(tempfile.mkdtemp(prefix=f"{_HOME}{os.getpid()}-"))
    atexit.register(_remove_home)
    return _home


def _sweep(folder: Path) -> None:
    """Remove what processes left that were killed and could not do it themselves."""
    for left in folder.glob(f"{_HOME}*-*"):
        pid = left.name.removeprefix(_HOME).partition("-")[0]
        with suppress(OSError):
            if pid.isdigit() and left.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)


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
