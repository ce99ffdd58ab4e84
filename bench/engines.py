"""The load engines as child processes, without a control plane: what `make bench` measures.

Each child reports messages, wall time and the CPU the kernel charged it for, threads included.
"""

import multiprocessing as mp
import resource
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from crescendo.control.notes import Statistics
from crescendo.load.amqp10 import Amqp10Receiver, Amqp10Sender
from crescendo.load.assignment import Quota
from crescendo.load.receiver import Receiver, ReceiverEngine
from crescendo.load.sender import Sender, SenderEngine
from crescendo.model.pacer import pacer_for
from crescendo.model.workload import Group
from crescendo.record.writer import Log, Recorder

FORK = mp.get_context("fork")
TAG = 99
NO_LIMIT = 2**62
PATIENCE_S = 120


@dataclass(frozen=True)
class Effort:
    """What one side did."""

    messages: int
    seconds: float
    cpu_seconds: float
    batch_share: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.messages * 1e6 if self.messages else 0.0


class Off:
    """No recording."""

    def append(self, table: str, rows: int, *columns: object) -> None:
        pass

    def tick(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


class Guard:
    """Stops an engine when the event is set; ignores its reports."""

    def __init__(self, stop: Event | None = None) -> None:
        self._stop = stop

    def should_stop(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def report(self, statistics: Statistics) -> None:
        pass

    def event(self, kind: str, detail: dict[str, object]) -> None:
        raise RuntimeError(f"{kind}: {detail}")


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def await_ready(channels: list[Any]) -> None:
    while not all(channel.ready for channel in channels):
        for channel in channels:
            channel.flush()
            list(channel.pump())
            if channel.closed is not None:
                raise RuntimeError(channel.closed)
        time.sleep(0.001)


def send(url: str, group: Group, quota: Quota, record: Path | None, batching: bool, results: Any) -> None:
    channels = [Amqp10Sender(url, group, batching=batching) for _ in range(group.senders)]
    await_ready(channels)
    log: Any = Recorder(record, "sender-0") if record else Off()
    engine = SenderEngine(
        [Sender(number, group, pacer_for(group.rate), quota, channel, TAG) for number, channel in enumerate(channels)],
        _as_log(log),
        Guard(),
        drain_ns=5 * 10**9,
    )
    before = cpu_seconds()
    begun = time.monotonic()
    statistics = engine.run(time.monotonic_ns())
    seconds = time.monotonic() - begun
    log.close()
    share = statistics.values.get("batch_share", 0.0)
    results.put(Effort(statistics.messages, seconds, cpu_seconds() - before, share))
    engine.close()


def receive(
    url: str, group: Group, record: Path | None, batching: bool, ready: Event, stop: Event, results: Any
) -> None:
    channels = [Amqp10Receiver(url, group, batching=batching) for _ in range(group.receivers)]
    await_ready(channels)
    log: Any = Recorder(record, "receiver-0") if record else Off()
    engine = ReceiverEngine(
        [Receiver(number, group, channel) for number, channel in enumerate(channels)],
        _as_log(log),
        Guard(stop),
        tag=TAG,
    )
    ready.set()
    before = cpu_seconds()
    begun = time.monotonic()
    statistics = engine.run()
    seconds = time.monotonic() - begun
    log.close()
    share = statistics.values.get("batch_share", 0.0)
    results.put(Effort(statistics.messages, seconds, cpu_seconds() - before, share))
    engine.close()


def through(
    url: str, group: Group, quota: Quota, *, record: Path | None = None, batching: bool = True
) -> tuple[Effort, Effort]:
    """Send through a system and receive everything; both sides' effort."""
    ready, stop = FORK.Event(), FORK.Event()
    sent: Any = FORK.Queue()
    received: Any = FORK.Queue()
    receiver = FORK.Process(target=receive, args=(url, group, record, batching, ready, stop, received))
    receiver.start()
    ready.wait(PATIENCE_S)
    sender = FORK.Process(target=send, args=(url, group, quota, record, batching, sent))
    sender.start()
    outgoing: Effort = sent.get(timeout=PATIENCE_S)
    # What is still under way: at most a few thousand messages in buffers, or what a slower receiver left in the queue.
    time.sleep(0.5 if batching else 4.0)
    stop.set()
    incoming: Effort = received.get(timeout=PATIENCE_S)
    sender.join()
    receiver.join()
    return outgoing, incoming


def _as_log(log: Any) -> Log:
    checked: Log = log
    return checked
