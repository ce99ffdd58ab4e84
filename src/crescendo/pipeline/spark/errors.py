"""How does a failure of Spark become one line for the user?

Spark fails with its own exceptions, or with Py4J's and those of its sockets if the JVM is gone or a call into it fails.
All become a LostError that names the task. Py4J also logs what it raises, with tracebacks; that is left out. Decides
nothing: whether the task is tried again is up to its caller.
"""

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from crescendo.model.errors import LostError

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
_REAP_TIMEOUT_S = 2.0


@contextmanager
def spark_errors(task: str, outcome: str = "did not finish", cure: str = "") -> Iterator[None]:
    """Turn a Spark failure into a one-line error: the task, its outcome, the reason, and what to do."""
    try:
        yield
    except SPARK_ERRORS as err:
        reason = jvm_death(err) or first_line(err)
        raise LostError(f"{task} {outcome}: {reason}{cure and f'; {cure}'}") from err


def jvm_death(err: Exception) -> str:
    """How the JVM of this process ended, if that explains the error; otherwise empty."""
    gateway = SparkContext._gateway
    if gateway is None or isinstance(err, PySparkException | Py4JJavaError):  # those are answers of a living JVM
        return ""
    code = exit_code(gateway.proc)
    return "" if code is None else signal_death(code) or f"Spark's Java process ended with code {code}"


def signal_death(code: int) -> str:
    """Which signal ended the JVM, by its exit code; empty if it ended by itself."""
    # Java handles some signals itself, and exits as a shell does after one: with 128 more than its number.
    number = -code if code < 0 else code - 128
    if number == signal.SIGKILL:
        return "Spark's Java process was killed (signal 9), as the kernel does when memory runs out"
    return f"Spark's Java process was ended by signal {number}" if number > 0 else ""


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a JVM that may just have ended; None if it is running."""
    try:
        # A connection breaks a moment before the process can be reaped.
        return process.wait(_REAP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def quieten_py4j() -> None:
    """Keep tracebacks of Py4J off the terminal: what it logs as an error, it also raises."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    root = logging.getLogger()  # Py4J logs to the root logger too
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


def first_line(err: Exception) -> str:
    """What went wrong, in one line. Py4J's own first line only names the object that was called."""
    if isinstance(err, Py4JJavaError):
        return java_reason(err)
    return next(iter(str(err).splitlines()), type(err).__name__)


def java_reason(err: Py4JJavaError) -> str:
    """The first line of the Java exception; the lines after it are the stack trace."""
    return str(err.java_exception.toString()).splitlines()[0]
