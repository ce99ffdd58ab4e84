"""What is the command of the JVM that runs Spark?

`spark-submit` is a shell script that starts a JVM only to print the command of the JVM that runs Spark. The rehearsal
keeps that command next to the class archive, and later sessions start Java with it. Where Spark's own configuration is
in the environment, the command may depend on it and is not used. Starts nothing.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from crescendo.pipeline.spark.class_archive import archive_path

MAIN = "org.apache.spark.deploy.SparkSubmit"
_MEMORY, _OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
_OWN_CONFIGURATION = (
    "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS", "SPARK_TESTING",
)  # fmt: skip


def keep_command(process_id: int, settings: Mapping[str, str]) -> None:
    """Keep the command of a running JVM that `spark-submit` started with these settings. On Linux only."""
    path = _path()
    try:
        arguments = Path(f"/proc/{process_id}/cmdline").read_bytes().decode().split("\0")
    except (OSError, UnicodeDecodeError):
        return
    if path is not None and MAIN in arguments:
        own = set(_options(settings))
        path.write_text(json.dumps([one for one in arguments[: arguments.index(MAIN)] if one not in own]))


def kept_command(settings: Mapping[str, str]) -> list[str] | None:
    """The command with these settings; None if there is none that can be used."""
    path = _path()
    if path is None or any(name in os.environ for name in _OWN_CONFIGURATION):
        return None
    try:
        java: list[str] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    submitted = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    return [*java, *_options(settings), MAIN, *submitted, "pyspark-shell"] if java and Path(java[0]).exists() else None


def _options(settings: Mapping[str, str]) -> list[str]:
    return [f"-Xmx{settings[_MEMORY]}", *settings[_OPTIONS].split()]


def _path() -> Path | None:
    archive = archive_path()
    return None if archive is None else archive.with_suffix(".command.json")
