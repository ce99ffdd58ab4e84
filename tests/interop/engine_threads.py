"""Engines driven in threads of a test, against a real broker, with a log that keeps rows in memory."""

import threading
import time
from typing import Any

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.record.writer import Log

PATIENCE_S = 90.0


class Control:
    """Stops when told to, and keeps the events."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def should_stop(self) -> bool:
        return self.stop.is_set()

    def report(self, statistics: Statistics) -> None:
        pass

    def event(self, kind: str, detail: dict[str, Any]) -> None:
        self.events.append((kind, detail))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


class Rows(Log):
    """A log that keeps what tests ask for."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []  # sequence number, attempt
        self.order: list[tuple[str, int]] = []  # what the sender did and saw, in this order
        self.settled: set[int] = set()
        self.received: list[int] = []
        self.response_ns: list[int] = []
        self.spans: dict[str, list[tuple[int, int]]] = {}  # action -> sequence number, duration

    def append(self, table: str, rows: int, *columns: Any) -> None:
        if table == "sent":
            numbers = np.atleast_1d(columns[1]).tolist()
            self.sent += [(seq, columns[2]) for seq in numbers]
            self.order += [("sent", seq) for seq in numbers]
        elif table == "settled":
            self.settled.update(range(columns[1], columns[2] + 1))
        elif table == "received":
            self.received += np.broadcast_to(np.asarray(columns[2]), rows).tolist()
            self.response_ns += np.broadcast_to(columns[5] - np.asarray(columns[3]), rows).tolist()

        elif table == "spans":
            numbers = columns[4].astype(int).tolist()
            self.spans.setdefault(columns[2], []).extend(zip(numbers, columns[3].tolist(), strict=True))
            self.order += [(columns[2], seq) for seq in numbers]

    def tick(self, now_ns: int) -> None:
        pass


def await_ready(channel: Any) -> Any:
    def is_ready() -> bool:
        channel.flush()
        list(channel.pump())
        assert channel.closed is None, channel.closed
        return bool(channel.ready)

    until(is_ready)
    return channel


def until(done: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
