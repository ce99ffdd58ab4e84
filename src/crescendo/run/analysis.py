"""How does a recording become a verdict?

Owns the one Spark session of a process. A run starts it in the background and waits for it before the first message
is due: starting a JVM takes seconds of CPU time that must not disturb the measurement, while an idle one takes none
(0.5 % of a core in its first seconds, then nothing measurable). So the verdict is available right after the run.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from crescendo.model.errors import LostError
from crescendo.pipeline.spark.java import use_java
from crescendo.record.manifest import read_manifest
from crescendo.record.summary import Summary
from crescendo.run.ceiling import with_ceiling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
_POLL_S = 0.1


class Analyst:
    """Turns recordings into summaries."""

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

    def wait(self, interrupted: Callable[[], bool]) -> None:
        """Block until Spark has started, or the user interrupts."""
        while self._thread is not None and self._thread.is_alive():
            if interrupted():
                raise KeyboardInterrupt
            self._thread.join(_POLL_S)
        if self._failure is not None:
            raise self._failure

    def analyze(self, run_dir: Path, progress: Progress, *, full: bool = False) -> Summary:
        read_manifest(run_dir)  # reject a directory that is not a recording before Spark starts
        from crescendo.pipeline.job import analyze

        self.warm_up()
        if self._session is None:
            progress("starting Spark")
        self.wait(lambda: False)
        if self._session is None:
            raise LostError("Spark did not start")
        return analyze(run_dir, self._session, progress, full=full, finish=with_ceiling)

    def close(self, *, at_once: bool = False) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._session is not None:
            from crescendo.pipeline.spark.session import close_session

            close_session(self._session, at_once=at_once)
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _open(self) -> None:
        try:
            from crescendo.pipeline.spark.session import open_session

            self._session = open_session(self._master)
        except Exception as err:  # raised again in wait()
            self._failure = err
