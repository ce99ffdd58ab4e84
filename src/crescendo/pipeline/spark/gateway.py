"""How does this process connect to the JVM of its session?

By the port and the secret that the JVM wrote to a file. A JVM that was not started ahead is started by `spark-submit`.
PySpark's own way to do that runs Python code between fork and exec, and does not tell how a JVM ended that failed to
start. Starts no session.
"""

import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
from py4j.java_gateway import JavaClass, java_import  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.serializers import UTF8Deserializer, read_int

from crescendo.pipeline.spark.jvm_start import CONNECTION_FILE_VARIABLE, PreparedJvm
from crescendo.processes.child import ChildProcess, launch_child

_POLL_S = 0.02
_CONSTANT = {
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession": "org.apache.spark.sql.classic.SparkSession",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
"""What PySpark asks the JVM for again with every column expression -> the class that it gets."""

_IMPORTED = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "scala.Tuple2",
)
"""The names that PySpark uses without their package, in the parts of it that we use."""


def submit(jvm: PreparedJvm) -> ChildProcess:
    """Start the JVM with `spark-submit`, which finds its class path and reads Spark's own configuration."""
    options = [word for item in jvm.settings.items() for word in ("--conf", "=".join(item))]
    application = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    variables = {"SPARK_CONNECT_MODE": "0", CONNECTION_FILE_VARIABLE: str(jvm.connection_file)}
    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *options, *application]
    # With a pipe, for the reasons that a prepared JVM has.
    return launch_child(command, on_fork=None, log=jvm.log, stdin=subprocess.PIPE, env=os.environ | variables)


def connect(connection_file: Path, process: ChildProcess) -> Any:
    """The gateway to the JVM. Raises PySparkRuntimeError if that exits first."""
    port, secret = _wait_for_address(connection_file, process)
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    gateway.proc = process
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    for name, of_class in _CONSTANT.items():
        setattr(gateway.jvm, name, _RememberingClass(of_class, gateway._gateway_client))
    return gateway


class _RememberingClass(JavaClass):  # type: ignore[misc]
    """A Java class whose static methods are looked up once.

    To look a name up, the JVM searches every jar for classes of that name: that took an eighth of a short analysis.
    """

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        setattr(self, name, found)
        return found


def _wait_for_address(file: Path, process: ChildProcess) -> tuple[int, str]:
    while not file.exists():
        if process.poll() is not None:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_POLL_S)
    with file.open("rb") as stream:
        return read_int(stream), UTF8Deserializer().loads(stream)  # type: ignore[no-untyped-call]
