"""How does Spark start quietly and fast?

One local session by default, or any cluster by its master URL. Everything the JVM prints goes to a file in a private
directory, which is removed with the session. `settings` holds Spark's configuration. Neither finds nor installs Java:
that is up to the caller.
"""

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.class_archive import archive_options
from crescendo.pipeline.spark.errors import SPARK_ERRORS
from crescendo.pipeline.spark.settings import (
    JAVA_OPTIONS_VARIABLE,
    check_master,
    in_one_process,
    on_this_machine,
    settings_for,
)
from crescendo.processes.child import wait_or_kill

_LOG = "spark.log"
_PREFIX = "crescendo-spark-"
_EXIT_TIMEOUT_S = 120  # a JVM that writes a class archive exits slowly
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # it runs for a third of a second
_private_dir: Path | None = None  # a process has one Spark context, so it has one private directory


def open_session(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str | None = None,
    java_options: tuple[str, ...] = (),
) -> SparkSession:
    """Start Spark. Without a master it runs on this machine's cores and listens on the loopback address only.

    A process has one Spark session: while it runs, every caller gets the same one.
    """
    if master is not None:
        check_master(master)
    running = running_session()
    if running is not None:
        return running
    _end_jvm()  # of a session that was stopped, but not closed
    home = _make_private_dir()
    # PySpark prints every failed query as JSON to stderr besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
    # The class archive comes from a JVM that is driver and executor in one; other JVMs load other classes.
    archive = archive_options() if in_one_process(master) else ()
    options = (*archive, *java_options, *os.environ.get(JAVA_OPTIONS_VARIABLE, "").split())
    settings = settings_for(master, cores=cores or os.cpu_count() or 1, memory=memory, home=home, java_options=options)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        with (home / _LOG).open("wb") as log, _jvm_environment(home, master):
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except SPARK_ERRORS as err:
        reason = _first_log_line(home)
        _end_jvm()
        raise ConfigError(f"Spark does not start: {reason}; check the master and JAVA_HOME") from err


def running_session() -> SparkSession | None:
    """The session of this process, whichever thread started it; None when there is none."""
    context = SparkContext._active_spark_context
    if context is None:
        return None
    session = SparkSession._instantiatedSession
    return session if session is not None and session._sc is context else SparkSession(context)


def close_session(spark: SparkSession, *, at_once: bool = False) -> None:
    """Stop Spark, wait until its process has exited, and remove its files.

    With `at_once`, or after an interrupt, the JVM is killed: the results of jobs in progress are no longer needed, and
    tables are complete or absent.
    """
    if at_once or isinstance(sys.exc_info()[1], KeyboardInterrupt):
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # it would log every call that this interrupts
        if SparkContext._gateway is not None:
            SparkContext._gateway.proc.kill()
        SparkContext._active_spark_context = None
    elif SparkContext._active_spark_context is not None:
        spark.stop()
    _end_jvm()


@contextmanager
def _jvm_environment(home: Path, master: str | None) -> Iterator[None]:
    """Set the environment variables for starting a JVM on this machine, and restore them afterwards."""
    variables = {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine(master) else {}
    if master is not None and master.startswith("local-cluster"):
        # Its workers keep the files of every executor in SPARK_HOME, and no setting changes that.
        variables["SPARK_HOME"] = str(_linked_spark_home(home / "spark"))
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _linked_spark_home(folder: Path) -> Path:
    """A directory of links to Spark's files, so that new files end up in our directory and not in Spark's."""
    folder.mkdir()
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def _end_jvm() -> None:
    # PySpark would keep the JVM until this process exits, but nothing may outlive the run.
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        wait_or_kill(gateway.proc, _EXIT_TIMEOUT_S)
    _remove_private_dir()


def _make_private_dir() -> Path:
    global _private_dir  # noqa: PLW0603
    _remove_orphaned(Path(tempfile.gettempdir()))
    _private_dir = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(_remove_private_dir)
    return _private_dir


def _remove_orphaned(folder: Path) -> None:
    """Remove the directories of processes that were killed before they could clean up."""
    for directory in folder.glob(f"{_PREFIX}*-*"):
        pid = directory.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            if pid.isdigit() and directory.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(directory, ignore_errors=True)


def _first_log_line(home: Path) -> str:
    """The first line the JVM logged; the lines after it are the stack trace."""
    lines = (home / _LOG).read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip() and not line.startswith("WARNING")), "nothing")


def _remove_private_dir() -> None:
    global _private_dir  # noqa: PLW0603
    if _private_dir is not None:
        shutil.rmtree(_private_dir, ignore_errors=True)
        _private_dir = None
    atexit.unregister(_remove_private_dir)
