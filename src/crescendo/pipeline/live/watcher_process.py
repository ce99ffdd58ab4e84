"""How does a run get live tables without computing them itself?

A process of its own, with a Spark of its own, started before the first message is due and told the place of the
recording when there is one. It writes one line of JSON a batch; a thread only queues them, and whoever runs the
experiment picks them up when it has time. When the companion fails, the run goes on without it. Knows nothing of Spark.
"""

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

READY = "ready"
FROM_STDIN = "-"
_STOP_S = 3.0
_LINES = 10_000
"""More than anybody reads; then the pipe holds the companion back, not the run."""


class WatcherProcess:
    """A watcher of one run."""

    def __init__(self, on_fork: Callable[[], None] | None = None) -> None:
        self._on_fork = on_fork
        self._process: subprocess.Popen[str] | None = None
        # Ours, so that nothing stays behind even when it has to be killed.
        self._folder = tempfile.TemporaryDirectory(prefix="crescendo-live-", ignore_cleanup_errors=True)
        self._lines: queue.Queue[str | None] = queue.Queue(_LINES)
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []
        self._told = False
        self._complaint = ""

    def start(self) -> None:
        """Begin to start Spark, in the background."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crescendo.cli.main", "watch", FROM_STDIN, "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": self._folder.name},
            preexec_fn=self._on_fork,  # noqa: PLW1509 - one prctl, from the main thread
            start_new_session=True,  # Ctrl-C is for the conductor, who ends us
        )
        for context in (self._read_lines, self._read_complaint):
            thread = threading.Thread(target=context, args=(self._process,), name="live tables", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wait_until_ready(self, interrupted: Callable[[], bool]) -> None:
        """Until its Spark is there, it has failed, or the person has had enough."""
        while self._process is not None and not self._ready.wait(0.1):
            if interrupted():
                raise KeyboardInterrupt
            if self._process.poll() is not None:
                return

    def look_at(self, run_dir: Path) -> None:
        """Tell it, once, where the recording is."""
        if self._told or self._process is None or self._process.stdin is None:
            return
        self._told = True
        with contextlib.suppress(OSError):  # it has ended; that is said when its lines are asked for
            self._process.stdin.write(f"{run_dir}\n")
            self._process.stdin.close()

    def lines(self, wait_s: float = 0.0) -> list[str] | None:
        """What it has written since the last time; None when nothing will follow."""
        found: list[str] = []
        with contextlib.suppress(queue.Empty):
            line = self._lines.get(timeout=wait_s) if wait_s else self._lines.get_nowait()
            while line is not None:
                found.append(line)
                line = self._lines.get_nowait()
            self._lines.put(None)  # whoever asks again gets the same answer
            return found or None
        return found

    def complaint(self) -> str:
        """Why it ended before its time; empty when it did not."""
        if self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._hear_out()
        return self._complaint if self._process.returncode else ""

    def stop(self) -> None:
        if self._process is not None:
            self._end(self._process)
        self._folder.cleanup()

    def _end(self, process: "subprocess.Popen[str]") -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._hear_out()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _hear_out(self) -> None:
        """Its last words may still be on their way to us."""
        for thread in self._threads:
            thread.join(_STOP_S)

    def _read_lines(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            if line.strip() == READY:
                self._ready.set()
            else:
                self._lines.put(line)
        self._lines.put(None)  # nothing will follow

    def _read_complaint(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stderr or ():
            self._complaint = line.strip().removeprefix("crescendo: ") or self._complaint
