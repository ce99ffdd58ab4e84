"""How does Spark start quietly and fast?

One local session by default, or any cluster by its master URL. `settings` holds its configuration, `jvm_start` starts
its process. Neither finds nor installs Java: that is up to the caller.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError, LostError
from crescendo.pipeline.spark.errors import SPARK_ERRORS, exit_code, quieten_py4j, signal_death
from crescendo.pipeline.spark.gateway import connect, submit
from crescendo.pipeline.spark.jvm_start import PreparedJvm, local_address, prepare_jvm, remove_private_dir
from crescendo.pipeline.spark.settings import check_master
from crescendo.processes.child import wait_or_kill

_EXIT_TIMEOUT_S = 120  # a JVM that writes a class archive exits slowly
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # it runs for a third of a second


def open_session(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str | None = None,
    java_options: tuple[str, ...] = (),
    messages: int | None = None,
    jvm: PreparedJvm | None = None,
) -> SparkSession:
    """Start Spark. Without a master it runs on this machine's cores and listens on the loopback address only.

    messages: about how many it will read, which decides how its code is compiled; None if nobody knows.
    jvm: one that was prepared for this session, whatever the other arguments say.
    A process has one Spark session: while it runs, every caller gets the same one.
    """
    if master is not None:
        check_master(master)
    running = running_session()
    if running is not None:
        return running
    if jvm is None:
        _end_jvm()  # of a session that was stopped, but not closed
        jvm = prepare_jvm(master, cores=cores, memory=memory, java_options=java_options, messages=messages)
    quieten_py4j()
    # PySpark prints every failed query as JSON to stderr besides raising it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
    conf = SparkConf(loadDefaults=False).setAll(list(jvm.settings.items()))
    with _jvm_environment(jvm.home, master):
        process = jvm.process or submit(jvm)
    try:
        return SparkSession(SparkContext(conf=conf, gateway=connect(jvm.connection_file, process)))
    except SPARK_ERRORS as err:
        code, reason = exit_code(process), _first_log_line(jvm.log)
        _end_jvm()
        process.kill()  # unless it has ended by now
        process.wait()
        if code is not None and (death := signal_death(code)):
            raise LostError(f"Spark did not start: {death}") from err
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
    tables are complete or absent. A JVM that is gone already is not asked to stop.
    """
    gateway = SparkContext._gateway
    is_dead = gateway is not None and gateway.proc.poll() is not None
    if at_once or is_dead or isinstance(sys.exc_info()[1], KeyboardInterrupt):
        if gateway is not None:
            gateway.proc.kill()
        if spark.sparkContext._accumulatorServer is not None:  # it looks only twice a second whether it should end
            threading.Thread(target=spark.sparkContext._accumulatorServer.shutdown, daemon=True).start()
        SparkContext._active_spark_context = SparkSession._instantiatedSession = None
    elif SparkContext._active_spark_context is not None:
        spark.stop()
    _end_jvm()


@contextmanager
def _jvm_environment(home: Path, master: str | None) -> Iterator[None]:
    """Set the environment variables for starting a JVM on this machine, and restore them afterwards."""
    variables = local_address(master)
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
    remove_private_dir()


def _first_log_line(log: Path) -> str:
    """The first line the JVM logged; the lines after it are the stack trace."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip() and not line.startswith("WARNING")), "nothing")
