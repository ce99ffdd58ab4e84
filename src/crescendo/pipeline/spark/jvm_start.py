"""How does the JVM start while Python is still importing PySpark?

Importing PySpark and the pipeline takes as long as the JVM needs to boot, so the JVM is started first, by the command
that the rehearsal kept; a session then connects to it. Everything it writes is in a private directory, which is removed
with the session. Imports nothing of PySpark.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crescendo.pipeline.spark.class_archive import archive_options
from crescendo.pipeline.spark.kept_command import kept_command
from crescendo.pipeline.spark.settings import (
    JAVA_OPTIONS_VARIABLE,
    PACKAGE,
    in_one_process,
    on_this_machine,
    settings_for,
)
from crescendo.processes.child import ChildProcess, launch_child

LOG = "spark.log"
CONNECTION_FILE_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PREFIX = "crescendo-spark-"
_private_dir: Path | None = None  # a process has one Spark context, so it has one private directory


@dataclass(frozen=True)
class PreparedJvm:
    """The settings of a session and its private directory; the process, unless `spark-submit` has to start it."""

    settings: Mapping[str, str]
    home: Path
    process: ChildProcess | None

    @property
    def connection_file(self) -> Path:
        """Where the JVM writes its port and its secret."""
        return self.home / "gateway"

    @property
    def log(self) -> Path:
        return self.home / LOG


def prepare_jvm(
    master: str | None = None,
    *,
    cores: int | None = None,
    memory: str | None = None,
    java_options: tuple[str, ...] = (),
    messages: int | None = None,
    by_kept_command: bool = True,
) -> PreparedJvm:
    """Start the JVM of a session if its command is known. The arguments are those of `open_session`."""
    home = _make_private_dir()
    # The class archive comes from a JVM that is driver and executor in one; other JVMs load other classes.
    archive = archive_options() if in_one_process(master) else ()
    settings = settings_for(
        master,
        cores=cores or os.cpu_count() or 1,
        memory=memory,
        home=home,
        java_options=(*archive, *java_options, *os.environ.get(JAVA_OPTIONS_VARIABLE, "").split()),
        messages=messages,
    )
    prepared = PreparedJvm(settings, home, None)
    command = kept_command(settings) if by_kept_command and in_one_process(master) else None
    if command is None:
        return prepared
    variables = {"SPARK_CONNECT_MODE": "0", "PYTHONHASHSEED": "0"} | _spark_home() | local_address(master)
    environment = os.environ | variables | {CONNECTION_FILE_VARIABLE: str(prepared.connection_file)}
    # It exits when its standard input is closed, so it never outlives us. It is started by a thread, which ends first.
    process = launch_child(command, on_fork=None, log=prepared.log, stdin=subprocess.PIPE, env=environment)
    return PreparedJvm(settings, home, process)


def _spark_home() -> dict[str, str]:
    """As `spark-submit` sets it: there the JVM finds PySpark for the Python workers of plugins."""
    found = find_spec(PACKAGE)
    return (
        {}
        if found is None or not found.submodule_search_locations
        else {"SPARK_HOME": found.submodule_search_locations[0]}
    )


def may_have_session() -> bool:
    """Whether this process has imported PySpark, so that a session may be running."""
    return PACKAGE in sys.modules


def local_address(master: str | None) -> dict[str, str]:
    """The environment variable that binds a JVM to this machine."""
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine(master) else {}


def remove_private_dir() -> None:
    global _private_dir  # noqa: PLW0603
    if _private_dir is not None:
        shutil.rmtree(_private_dir, ignore_errors=True)
        _private_dir = None
    atexit.unregister(remove_private_dir)


def _make_private_dir() -> Path:
    global _private_dir  # noqa: PLW0603
    _remove_orphaned(Path(tempfile.gettempdir()))
    _private_dir = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(remove_private_dir)
    return _private_dir


def _remove_orphaned(folder: Path) -> None:
    """Remove the directories of processes that were killed before they could clean up."""
    for directory in folder.glob(f"{_PREFIX}*-*"):
        pid = directory.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            if pid.isdigit() and directory.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(directory, ignore_errors=True)
