"""Engines driven in threads of a test, against a real broker, with a log that keeps rows in memory."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.stalls import STALL
from crescendo.load.protocols.registry import driver_of
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.workload import Group
from crescendo.record.writer import RowSink

TIMEOUT_S = 90.0
TAG = 4711


class Control:
    """Stops on request, and keeps the events."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def should_stop(self) -> bool:
        return self.stop.is_set()

    def report(self, statistics: Statistics) -> None:
        pass

    def event(self, kind: str, detail: dict[str, Any]) -> None:
        if kind != STALL:
            self.events.append((kind, detail))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


class Rows(RowSink):
    """A log that keeps what the tests check."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []  # sequence number, attempt
        self.order: list[tuple[str, int]] = []  # what the sender sent and received, in this order
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
            for first, last in zip(np.atleast_1d(columns[1]), np.atleast_1d(columns[2]), strict=True):
                self.settled.update(range(first, last + 1))
        elif table == "received":
            self.received += np.broadcast_to(np.asarray(columns[2]), rows).tolist()
            self.response_ns += np.broadcast_to(columns[5] - np.asarray(columns[3]), rows).tolist()

        elif table == "spans":
            numbers = columns[4].astype(int).tolist()
            self.spans.setdefault(columns[2], []).extend(zip(numbers, columns[3].tolist(), strict=True))
            self.order += [(columns[2], seq) for seq in numbers]

    def tick(self, now_ns: int) -> None:
        pass


class Load:
    """A sender and a receiver of one group, ready, each with a thread of its own, and their rows and events."""

    def __init__(self, url: str, group: Group, count: int, *, redialling: bool = False) -> None:
        def again(role: str) -> Callable[[str | None], Any] | None:
            return (lambda _: driver_of(group.protocol, role)(url, group)) if redialling else None

        self.rows, self.sending, self.receiving = Rows(), Control(), Control()
        incoming = await_ready(driver_of(group.protocol, "receiver")(url, group))
        outgoing = await_ready(driver_of(group.protocol, "sender")(url, group))
        receiver = Receiver(0, group, incoming, redial=again("receiver"))
        self._receivers = ReceiverEngine([receiver], self.rows, self.receiving, tag=TAG)
        pacer, quota = pacer_for(group.rate), Quota(count, UNLIMITED)
        sender = Sender(0, group, pacer, quota, outgoing, TAG, redial=again("sender"))
        self._senders = SenderEngine([sender], self.rows, self.sending, drain_ns=int(TIMEOUT_S * 1e9))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._senders.run, args=(time.monotonic_ns(),)),
            threading.Thread(target=self._receivers.run),
        ]
        for thread in self._threads:
            thread.start()

    def await_sent(self) -> None:
        """Wait until the sender has ended by itself, which it does when everything is settled."""
        self._threads[0].join(TIMEOUT_S)
        assert not self._threads[0].is_alive()

    def close(self) -> None:
        self.sending.stop.set()
        self.receiving.stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._receivers.close()
        self._senders.close()


def await_ready(channel: Any) -> Any:
    def is_ready() -> bool:
        channel.flush()
        list(channel.pump())
        assert channel.closed is None, channel.closed
        return bool(channel.ready)

    until(is_ready)
    return channel


def until(done: Any) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
