"""The load engines as child processes, without a control plane: what `make bench` measures.

Each child reports messages, wall time and the CPU time that the kernel charged to it, all threads included.
"""

import multiprocessing as mp
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from crescendo.calibrate.engine_trial import TrialResult, receive, send
from crescendo.load.assignment import Quota
from crescendo.model.workload import Group
from crescendo.record.schema import RECEIVED
from crescendo.record.writer import Recorder, RowSink

FORK = mp.get_context("fork")
TAG = 99
NO_LIMIT = 2**62
TIMEOUT_S = 120
_IDLE_TIMEOUT_S = 10.0
"""How long a receiver waits for one more message once the sender is done."""


class NullSink(RowSink):
    """No recording."""

    def append(self, table: str, rows: int, *columns: object) -> None:
        pass

    def tick(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class CountingSink(RowSink):
    """Counts received messages and passes all rows on to a log."""

    log: Any
    messages: int = 0

    def append(self, table: str, rows: int, *columns: object) -> None:
        if table == RECEIVED:
            self.messages += rows
        self.log.append(table, rows, *columns)

    def tick(self, now_ns: int) -> None:
        self.log.tick(now_ns)


class Child:
    """Runs a function in a process of its own; hands over its result or its exception."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._results: Any = FORK.Queue()
        self._process = FORK.Process(target=self._run, args=(function, *arguments), daemon=True)
        self._process.start()

    def result(self, timeout_s: float = TIMEOUT_S) -> Any:
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
    url: str,
    group: Group,
    quota: Quota,
    *,
    record: Path | None = None,
    batching: bool = True,
    receive_url: str | None = None,
    receive_group: Group | None = None,
) -> tuple[TrialResult, TrialResult]:
    """Send through a system and receive everything; returns the results of sender and receiver.

    In a network the receiver has another URL than the sender, and may call the queue by another name.
    """
    ready = FORK.Event()
    expected = FORK.Value("q", NO_LIMIT)
    receiver = Child(_receive, receive_url or url, receive_group or group, record, batching, ready, expected)
    while not ready.wait(0.1) and receiver.running:
        pass  # a receiver that has failed raises below
    if not ready.is_set():
        receiver.result()
    sender = Child(_send, url, group, quota, record, batching)
    sent: TrialResult = sender.result()
    expected.value = sent.messages
    received: TrialResult = receiver.result()
    return sent, received


def _send(url: str, group: Group, quota: Quota, record: Path | None, batching: bool) -> TrialResult:
    log: Any = Recorder(record, "sender-0") if record else NullSink()
    try:
        return send(url, group, quota, tag=TAG, log=log, batching=batching)
    finally:
        log.close()


def _receive(url: str, group: Group, record: Path | None, batching: bool, ready: Event, expected: Any) -> TrialResult:
    log: Any = Recorder(record, "receiver-0") if record else NullSink()
    sink = CountingSink(log)
    progress: list[float] = [0, 0.0]  # messages, and when the last of them arrived

    def stop(_elapsed: float) -> bool:
        if sink.messages > progress[0] or expected.value == NO_LIMIT:
            progress[:] = sink.messages, time.monotonic()
        return sink.messages >= expected.value or time.monotonic() - progress[1] > _IDLE_TIMEOUT_S

    try:
        return receive(url, group, tag=TAG, stop=stop, on_ready=ready.set, log=sink, batching=batching)
    finally:
        log.close()
