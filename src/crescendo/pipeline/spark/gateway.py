"""How does this process connect to the JVM of its session?

To one that was started already, by the port and the secret that it wrote to a file; otherwise `spark-submit` starts it
and PySpark connects. Starts no session.
"""

import subprocess
import time
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
from py4j.java_gateway import java_import  # type: ignore[import-untyped]
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from crescendo.pipeline.spark.jvm_start import PreparedJvm

_POLL_S = 0.02
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


def connect(jvm: PreparedJvm) -> Any:
    """The gateway to the JVM. Raises PySparkRuntimeError if that exits first."""
    if jvm.process is None:
        conf = SparkConf(loadDefaults=False).setAll(list(jvm.settings.items()))
        with jvm.log.open("wb") as log:
            return launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    port, secret = _wait_for_address(jvm.connection_file, jvm.process)
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    gateway.proc = jvm.process
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    return gateway


def _wait_for_address(file: Path, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    while not file.exists():
        if process.poll() is not None:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_POLL_S)
    with file.open("rb") as stream:
        return read_int(stream), UTF8Deserializer().loads(stream)  # type: ignore[no-untyped-call]
