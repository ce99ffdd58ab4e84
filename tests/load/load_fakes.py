"""Channels without a network and a log without a disk, for tests of the engines alone.

Nothing here imitates a system under test: a channel accepts messages and reports when it has room. Readiness is
signalled through a real socket pair, because the engines poll file descriptors.
"""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.engine.stalls import STALL
from crescendo.load.protocols.interfaces import ReceivedMessages, SettledMessages
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import Stamps, stamps_of


class FakeChannel:
    """What both directions have in common."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.ready = True
        self.closed: str | None = None
        self.read_ns = time.monotonic_ns()
        self.close_starts = 0
        self.pending = False
        self.drained = True
        self.read_limit: int | None = None
        self.stamps_reads = False
        self.arrived_ns: int | None = None

    def fileno(self) -> int:
        return self._ours.fileno()

    def oldest_unread_ns(self) -> int | None:
        return None

    def notify(self) -> None:
        """Make the channel readable, as if the peer had sent something."""
        self._theirs.send(b"!")

    def read_pending(self) -> None:
        self._ours.recv(4096)
        self.read_ns = time.monotonic_ns()

    def flush(self) -> bool:
        return True

    def keep_alive(self, now_ns: int) -> None:
        assert now_ns > 0

    def give_up(self, reason: str) -> None:
        self.closed = reason

    def start_close(self) -> None:
        self.close_starts += 1

    def peer_closed(self) -> bool:
        return self.close_starts > 0

    def close(self) -> None:
        self.release()

    def release(self) -> None:
        self._ours.close()
        self._theirs.close()


class FakeSendChannel(FakeChannel):
    """Accepts batches; has as much room as `allow` returns."""

    def __init__(self, capacity: int = 64, allow: Callable[[int], int] | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        self.resize(256)
        self.batched = 0
        self.prepares = True
        self.written = self.committed = 0  # prepared messages: sent, and accounted for
        self.taken: list[Any] = []
        self.outcomes: list[SettledMessages] = []
        self._allow = allow

    def resize(self, size: int) -> None:
        self.bodies = np.zeros((self.capacity, size), np.uint8)
        self.stamps = stamps_of(self.bodies)

    def room(self) -> int:
        if self.closed is not None:
            return 0
        return self.capacity if self._allow is None else min(self._allow(len(self.taken)), self.capacity)

    def send(self, first_seq: int, count: int) -> bool:
        assert first_seq == self.stamps["seq"][0]
        assert 0 < count <= self.capacity
        assert self.committed == self.written, "prepared messages are committed before anything else is sent"
        return self.take(self.stamps[:count])

    def prepare(self, count: int) -> memoryview | None:
        assert self.committed == self.written
        return self.bodies[:count].reshape(-1).data if self.prepares else None

    def write(self, octets: memoryview) -> bool:
        bodies = np.frombuffer(octets, np.uint8).reshape(-1, self.bodies.shape[1])
        self.written += len(bodies)
        return self.take(stamps_of(bodies))

    def mark_prepared_sent(self, first_seq: int, sent_ns: list[int]) -> None:
        self.committed += len(sent_ns)
        assert self.committed == self.written
        assert [(row[3], row[5]) for row in self.taken[-len(sent_ns) :]] == list(enumerate(sent_ns, first_seq))

    def take(self, stamps: Stamps) -> bool:
        """Keep the stamps of sent messages."""
        self.taken.extend(stamps.tolist())
        return self._allow is None

    def pump(self) -> list[SettledMessages]:
        assert self.committed == self.written
        self.read_pending()
        outcomes, self.outcomes = self.outcomes, []
        return outcomes


class FakeReceiveChannel(FakeChannel):
    """Yields its batches, all of them at the first read."""

    window = 1000

    def __init__(self, batches: list[ReceivedMessages]) -> None:
        super().__init__()
        self._batches = batches
        self.begun = False
        self.settled = 0

    def begin(self) -> None:
        self.begun = True
        self.notify()

    def pump(self) -> Iterator[ReceivedMessages]:
        assert self.begun
        self.read_pending()
        batches, self._batches = self._batches, []
        yield from batches

    def settle(self) -> None:
        self.settled += 1


def _each(column: Any, rows: int) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else [column] * rows


class FakeLog(RowSink):
    """Rows as tuples, one per message, by table."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.ticks = 0

    def append(self, table: str, rows: int, *columns: Any) -> None:
        values = [list(column) if isinstance(column, range) else _each(column, rows) for column in columns]
        assert all(len(column) == rows for column in values)
        self.rows.setdefault(table, []).extend(zip(*values, strict=True))

    def tick(self, now_ns: int) -> None:
        assert now_ns > 0
        self.ticks += 1


class FakeControl:
    """Stops on a condition, and keeps reports and events."""

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = stop
        self.reports: list[Statistics] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.stalls: list[dict[str, object]] = []  # a busy machine has some at any time

    def should_stop(self) -> bool:
        return self._stop()

    def report(self, statistics: Statistics) -> None:
        self.reports.append(statistics)

    def event(self, kind: str, detail: dict[str, object]) -> None:
        if kind == STALL:
            self.stalls.append(detail)
        else:
            self.events.append((kind, detail))
