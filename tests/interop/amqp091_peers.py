"""pika as the foreign client, and our own AMQP 0-9-1 channels driven by hand or by the engines."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pika
from pika.adapters.blocking_connection import BlockingChannel

from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.stalls import STALL
from crescendo.load.protocols.amqp091 import Amqp091Receiver, Amqp091Sender
from crescendo.model.pacer import pacer_for
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement
from crescendo.record.writer import RowSink
from pumping import TIMEOUT_S, ready

TAG = 7
_FOREVER_NS = 2**62


def group(address: str, size: int = 256, *, at_most_once: bool = False, rate: float = 0) -> Group:
    settle = Settle.AT_MOST_ONCE if at_most_once else Settle.AT_LEAST_ONCE
    return Group(address=address, size=PayloadSize.fixed(size), settle=settle, rate=rate)


def bodies(count: int, size: int) -> list[bytes]:
    return [number.to_bytes(8, "big").ljust(size, b".")[:size] for number in range(count)]


# -- pika ------------------------------------------------------------------------------------------------------------


@contextmanager
def pika_channel(url: str) -> Iterator[BlockingChannel]:
    parameters = pika.URLParameters(url.replace("amqp091://", "amqp://", 1).rstrip("/") + "/%2F")
    with closing(pika.BlockingConnection(parameters)) as connection:
        yield connection.channel()


def pika_publish(url: str, queue: str, payloads: list[bytes], exchange: str = "") -> None:
    with pika_channel(url) as channel:
        for payload in payloads:
            channel.basic_publish(exchange, queue, payload)


def pika_receive(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Consume with acknowledgements until `count` messages have arrived."""
    received: list[bytes] = []
    channel.basic_qos(prefetch_count=500)
    for method, _, body in channel.consume(queue, inactivity_timeout=TIMEOUT_S):
        assert method is not None, f"{len(received)} of {count} received"
        received.append(body)
        if len(received) == count or len(received) % 250 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(received) == count:
            break
    channel.cancel()
    return received


def depth(url: str, queue: str) -> int:
    """How many messages wait in the queue, as pika sees it."""
    with pika_channel(url) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


# -- our channels, by hand -------------------------------------------------------------------------------------------


def refused(channel: Any) -> str:
    """Why the system refused this channel."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while channel.closed is None:
        assert time.monotonic() < deadline_s
        channel.flush()
        list(channel.pump())
        time.sleep(0.01)
    return str(channel.closed)


# -- our channels, by the engines ------------------------------------------------------------------------------------


class Rows(RowSink):
    """A log in memory: one list of whole columns per table."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.count: dict[str, int] = defaultdict(int)

    def append(self, table: str, rows: int, *columns: object) -> None:
        copies = (np.array(column, copy=True) for column in columns)
        self._parts[table].append(tuple(np.broadcast_to(column, rows) for column in copies))
        self.count[table] += rows

    def tick(self, now_ns: int) -> None:
        assert now_ns > 0

    def column(self, table: str, index: int) -> list[int]:
        return [int(value) for part in self._parts[table] for value in part[index]]


class Watch:
    """Stops an engine on request, or when its time is up."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.events: list[dict[str, object]] = []
        self._deadline_s = time.monotonic() + TIMEOUT_S

    def should_stop(self) -> bool:
        return self.stop.is_set() or time.monotonic() > self._deadline_s

    def report(self, statistics: Statistics) -> None:
        assert statistics.messages >= 0

    def event(self, kind: str, detail: dict[str, object]) -> None:
        if kind != STALL:
            self.events.append({"kind": kind, **detail})


def through(url: str, load: Group, count: int, *, expected: int) -> tuple[Rows, Rows, list[Statistics]]:
    """Send `count` messages and receive until `expected` have arrived: the rows and the statistics of both sides."""
    sent, received = Rows(), Rows()
    sending, receiving = Watch(), Watch()
    with closing(Amqp091Receiver(url, load)) as source, closing(Amqp091Sender(url, load)) as target:
        sender = Sender(0, load, pacer_for(load.rate), Quota(count, _FOREVER_NS), ready(target), TAG)
        outgoing = SenderEngine([sender], sent, sending, drain_ns=int(TIMEOUT_S * 1e9))
        incoming = ReceiverEngine([Receiver(0, load, ready(source))], received, receiving, tag=TAG)
        reports: list[Statistics] = []
        thread = threading.Thread(target=lambda: reports.append(incoming.run()))
        thread.start()
        try:
            reports.append(outgoing.run(time.monotonic_ns()))
            deadline_s = time.monotonic() + TIMEOUT_S
            while received.count[RECEIVED] < expected and time.monotonic() < deadline_s:
                target.flush()
                time.sleep(0.05)
            time.sleep(0.2)  # unexpected messages would arrive now
        finally:
            receiving.stop.set()
            thread.join(TIMEOUT_S)
            incoming.close()
            outgoing.close()
    assert sending.events == receiving.events == []
    return sent, received, reports


def check_ledger(url: str, address: str, count: int) -> None:
    """At least once, on a healthy broker: everything sent, settled and received once, in order, mostly in batches."""
    sent, received, reports = through(url, group(address), count, expected=count)
    assert sent.column(SENT, 1) == list(range(count))
    assert received.column(RECEIVED, 2) == list(range(count)), "lost, doubled or out of order"
    assert set(received.column(RECEIVED, 8)) == {0}
    settled = zip(sent.column(SETTLED, 1), sent.column(SETTLED, 2), strict=True)
    assert sorted(seq for first, last in settled for seq in range(first, last + 1)) == list(range(count))
    assert set(sent.column(SETTLED, 5)) == {Settlement.ACCEPTED}
    assert all(report.values.batch_share > 0.9 for report in reports)
