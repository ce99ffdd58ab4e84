"""The load engines as child processes, without a control plane: what `make bench` measures.

Each child reports messages, wall time and the CPU the kernel charged it for, threads included.
"""

import multiprocessing as mp
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from crescendo.calibrate.engine import TrialResult, receive, send
from crescendo.load.assignment import Quota
from crescendo.model.workload import Group
from crescendo.record.schema import RECEIVED
from crescendo.record.writer import Recorder, RowSink

FORK = mp.get_context("fork")
TAG = 99
NO_LIMIT = 2**62
PATIENCE_S = 120
_LAST_WAIT_S = 10.0
"""So long a receiver waits for one more message when the sender is done."""


class Off(RowSink):
    """No recording."""

    def append(self, table: str, rows: int, *columns: object) -> None:
        pass

    def tick(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Arrivals(RowSink):
    """A recording, or none, that knows how many messages have arrived."""

    log: Any
    messages: int = 0

    def append(self, table: str, rows: int, *columns: object) -> None:
        if table == RECEIVED:
            self.messages += rows
        self.log.append(table, rows, *columns)

    def tick(self, now_ns: int) -> None:
        self.log.tick(now_ns)


class Child:
    """A function in a process of its own; what it returns, or why it could not."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._results: Any = FORK.Queue()
        self._process = FORK.Process(target=self._run, args=(function, *arguments), daemon=True)
        self._process.start()

    def result(self, timeout_s: float = PATIENCE_S) -> Any:
        result = self._results.get(timeout=timeout_s)
        self._process.join()
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def _run(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._results.put(function(*arguments))
        except Exception as err:
            self._results.put(RuntimeError(f"{type(err).__name__}: {err}"))


def through(
    url: str, group: Group, quota: Quota, *, record: Path | None = None, batching: bool = True
) -> tuple[TrialResult, TrialResult]:
    """Send through a system and receive everything; both sides' effort."""
    ready = FORK.Event()
    owed = FORK.Value("q", NO_LIMIT)
    receiver = Child(_receive, url, group, record, batching, ready, owed)
    while not ready.wait(0.1) and receiver.running:
        pass  # one that has ended tells its reason below
    if not ready.is_set():
        receiver.result()
    sender = Child(_send, url, group, quota, record, batching)
    sent: TrialResult = sender.result()
    owed.value = sent.messages
    received: TrialResult = receiver.result()
    return sent, received


def _send(url: str, group: Group, quota: Quota, record: Path | None, batching: bool) -> TrialResult:
    log: Any = Recorder(record, "sender-0") if record else Off()
    try:
        return send(url, group, quota, tag=TAG, log=log, batching=batching)
    finally:
        log.close()


def _receive(url: str, group: Group, record: Path | None, batching: bool, ready: Event, owed: Any) -> TrialResult:
    log: Any = Recorder(record, "receiver-0") if record else Off()
    arrivals = Arrivals(log)
    grown: list[float] = [0, 0.0]  # messages, and when there were last more of them

    def stop(_elapsed: float) -> bool:
        if arrivals.messages > grown[0] or owed.value == NO_LIMIT:
            grown[:] = arrivals.messages, time.monotonic()
        return arrivals.messages >= owed.value or time.monotonic() - grown[1] > _LAST_WAIT_S

    try:
        return receive(url, group, tag=TAG, stop=stop, on_ready=ready.set, log=arrivals, batching=batching)
    finally:
        log.close()
