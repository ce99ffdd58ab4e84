"""How does a run get live tables without computing them itself?

A separate process with its own Spark session starts before the first message is due and receives the path of the
recording as soon as it exists. It writes one line of JSON per batch. A thread queues the lines, and the conductor loop
reads them when it has time. If the watcher fails, the run continues without it. Does not import Spark.
"""

import contextlib
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from crescendo.processes.child import (
    ChildProcess,
    OnFork,
    await_ready,
    close_pipes,
    exits_within,
    launch_child,
    wait_or_kill,
)

READY = "ready"
FROM_STDIN = "-"
_STOP_S = 3.0
_LINES = 10_000
"""When the queue is full, the pipe blocks the watcher, not the run."""


class WatcherProcess:
    """The process that watches one run."""

    def __init__(self, on_fork: OnFork | None = None) -> None:
        self._on_fork = on_fork
        self._process: ChildProcess | None = None
        # Owned by this process, so that it is removed even if the watcher has to be killed.
        self._folder = tempfile.TemporaryDirectory(prefix="crescendo-live-", ignore_cleanup_errors=True)
        self._lines: queue.Queue[str | None] = queue.Queue(_LINES)
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []
        self._run_dir_sent = False
        self._failure = ""

    def start(self) -> None:
        """Start the process, which starts Spark in the background."""
        self._process = launch_child(
            [sys.executable, "-m", "crescendo.cli.main", "watch", FROM_STDIN, "--json"],
            on_fork=self._on_fork,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": self._folder.name},
        )
        for read in (self._read_lines, self._read_errors):
            thread = threading.Thread(target=read, args=(self._process,), name="live tables", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wait_until_ready(self, interrupted: Callable[[], bool]) -> None:
        """Wait until its Spark session is ready or it has failed. Raises KeyboardInterrupt if interrupted."""

        def is_ready() -> bool:
            if interrupted():
                raise KeyboardInterrupt
            return self._ready.is_set()

        if self._process is not None:
            await_ready([self._process], is_ready, deadline_s=math.inf)

    def send_run_dir(self, run_dir: Path) -> None:
        """Send the path of the recording, once."""
        if self._run_dir_sent or self._process is None or self._process.stdin is None:
            return
        self._run_dir_sent = True
        with contextlib.suppress(OSError):  # the process has ended; `lines` and `failure` report that
            self._process.stdin.write(os.fsencode(run_dir) + b"\n")
            self._process.stdin.close()

    def lines(self, wait_s: float = 0.0) -> list[str] | None:
        """Lines written since the last call; None if no more will follow."""
        found: list[str] = []
        with contextlib.suppress(queue.Empty):
            line = self._lines.get(timeout=wait_s) if wait_s else self._lines.get_nowait()
            while line is not None:
                found.append(line)
                line = self._lines.get_nowait()
            self._lines.put(None)  # the next call gets the same answer
            return found or None
        return found

    def failure(self) -> str:
        """Why the process failed; empty if it did not."""
        if self._process is None:
            return ""
        exits_within(self._process, _STOP_S)
        self._join_readers()
        return self._failure if self._process.returncode else ""

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            wait_or_kill(self._process, _STOP_S)
            self._join_readers()  # before their pipes are closed
            close_pipes(self._process)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _join_readers(self) -> None:
        """Wait until the readers have read everything that the process wrote."""
        for thread in self._threads:
            thread.join(_STOP_S)

    def _read_lines(self, process: ChildProcess) -> None:
        for line in _text(process.stdout):
            if line.strip() == READY:
                self._ready.set()
            else:
                self._lines.put(line)
        self._lines.put(None)  # no more lines

    def _read_errors(self, process: ChildProcess) -> None:
        for line in _text(process.stderr):
            self._failure = line.strip().removeprefix("crescendo: ") or self._failure


def _text(pipe: IO[bytes] | None) -> Iterator[str]:
    return (line.decode(errors="replace") for line in pipe or ())
