"""How does a failure of Spark become one line for the user?

Spark fails with its own exceptions, or with Py4J's if the JVM is gone or a call into it fails. Both become a LostError
that names the task. Decides nothing: whether the task is tried again is up to its caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from crescendo.model.errors import LostError

SPARK_ERRORS = (PySparkException, Py4JError)


@contextmanager
def spark_errors(task: str, outcome: str = "did not finish") -> Iterator[None]:
    """Turn a Spark failure into a one-line error: the task, its outcome, and the reason."""
    try:
        yield
    except SPARK_ERRORS as err:
        raise LostError(f"{task} {outcome}: {first_line(err)}") from err


def first_line(err: Exception) -> str:
    """What went wrong, in one line. Py4J's own first line only names the object that was called."""
    if isinstance(err, Py4JJavaError):
        return java_reason(err)
    return next(iter(str(err).splitlines()), type(err).__name__)


def java_reason(err: Py4JJavaError) -> str:
    """The first line of the Java exception; the lines after it are the stack trace."""
    return str(err.java_exception.toString()).splitlines()[0]
