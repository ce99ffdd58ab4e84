"""How does a recording become a verdict?

A process has one Spark session. An analyst uses the one that is running, and leaves it alone, or starts its own and
stops that when it is closed. A run starts it in the background and waits for it before the first message
is due: starting a JVM takes seconds of CPU time that must not disturb the measurement, while an idle one takes none
(0.5 % of a core in its first seconds, then nothing measurable). So the verdict is available right after the run.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.spark.jvm_start import PreparedJvm, may_have_session, prepare_jvm
from crescendo.pipeline.spark.settings import check_master
from crescendo.pipeline.storage.locations import is_url
from crescendo.record.kept_recording import kept_recording
from crescendo.record.manifest import read_manifest
from crescendo.record.reader import recorded_messages
from crescendo.record.summary import Summary
from crescendo.run.ceiling import with_ceiling

if TYPE_CHECKING:
    from crescendo.pipeline.spark.spark_types import SparkSession

Progress = Callable[[str], None]
_POLL_S = 0.1


class Analyst:
    """Turns recordings into summaries. Use as a context manager; keep it to analyse several runs with one Spark."""

    def __init__(self, master: str | None = None) -> None:
        if master is not None:
            check_master(master)
        use_java()
        self._master = master
        self._session: SparkSession | None = None
        self._owns_session = self._ends_at_once = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._messages: int | None = None
        self._jvm: PreparedJvm | None = None

    def expect(self, messages: int | None) -> None:
        """About how many messages will be analysed; None if nobody knows. Only before Spark has started."""
        self._messages = messages

    def start(self) -> None:
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

    def analyze(self, run: str | os.PathLike[str], progress: Progress, *, full: bool = False) -> Summary:
        """Compute the tables and the verdict of a recording: a directory, or a URL such as hdfs://host/runs/a."""
        if isinstance(run, str) and is_url(run):
            from crescendo.pipeline.job import analyze

            return analyze(run, self.session(progress), progress, full=full)
        run_dir = Path(run)
        manifest = read_manifest(run_dir)  # reject a directory that is not a recording before Spark starts
        if self._thread is None:
            self.expect(recorded_messages([manifest]))
            self._prepare()
        from crescendo.pipeline.job import analyze

        try:
            session = self.session(progress)
        except CrescendoError as err:
            raise type(err)(f"{err}; {kept_recording(run_dir, 'analyze')}") from err
        return analyze(run_dir, session, progress, full=full, finish=with_ceiling)

    def session(self, progress: Progress) -> "SparkSession":
        """Its Spark session, started if need be."""
        if self._session is None:
            progress("starting Spark")
        self.start()
        self.wait(lambda: False)
        if self._session is None:
            raise LostError("Spark did not start")
        return self._session

    def close(self, *, at_once: bool = False) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._session is not None and self._owns_session:
            from crescendo.pipeline.spark.session import close_session

            close_session(self._session, at_once=at_once or self._ends_at_once)
        elif self._jvm is not None and self._jvm.process is not None:  # no session ever used it
            self._jvm.process.kill()
            self._jvm.process.wait()
        self._session = self._thread = self._failure = self._messages = self._jvm = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _prepare(self) -> None:
        """Start the JVM, unless a session may be running; it boots while the rest is imported."""
        if self._jvm is None and not may_have_session():
            self._jvm = prepare_jvm(self._master, messages=self._messages)

    def _open(self) -> None:
        try:
            self._prepare()
            from crescendo.pipeline.spark.session import open_session, running_session

            self._owns_session = running_session() is None
            self._session = open_session(self._master, messages=self._messages, jvm=self._jvm)
            # Its tables are complete, and no event log of the user's configuration waits for its end.
            self._ends_at_once = self._jvm is not None and self._jvm.process is not None
            self._jvm = None
            import_module("crescendo.pipeline.job")  # before the first message, not after the last
        except Exception as err:  # raised again in wait()
            self._failure = err


@contextmanager
def opened_analyst(given: Analyst | None, master: str | None = None) -> Iterator[Analyst]:
    """The given analyst, which stays open, or one of our own."""
    if given is None:
        with Analyst(master) as analyst:  # fails at once when there is no Java, not after the run
            yield analyst
    elif master is not None:
        raise ConfigError("master: the analyst has its own Spark master; give one of the two")
    else:
        yield given
