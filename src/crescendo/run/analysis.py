"""How does a recording become a verdict and a page?

Owns the one Spark session of a process. It may be started early, in the background, once the measurement is over:
starting a JVM takes seconds of CPU that must not disturb what is measured.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from crescendo.model.errors import LostError
from crescendo.pipeline.java import use_java
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]


class Analyst:
    """Turns recordings into summaries and reports."""

    def __init__(self, master: str | None = None) -> None:
        use_java()
        self._master = master
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def warm_up(self) -> None:
        """Start Spark in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._open, name="spark", daemon=True)
            self._thread.start()

    def analyze(self, run_dir: Path, progress: Progress) -> Summary:
        read_manifest(run_dir)  # a directory that is no recording needs no Spark to be refused
        from crescendo.pipeline.job import analyze

        self.warm_up()
        progress("starting Spark")
        if self._thread is not None:
            self._thread.join()
        if self._session is None:
            raise LostError(f"Spark did not start: {self._failure}") from self._failure
        return analyze(run_dir, self._session, progress)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._session is not None:
            from crescendo.pipeline.session import close_session

            close_session(self._session)
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open(self) -> None:
        try:
            from crescendo.pipeline.session import open_session

            self._session = open_session(self._master)
        except Exception as err:  # raised again where the session is needed
            self._failure = err
