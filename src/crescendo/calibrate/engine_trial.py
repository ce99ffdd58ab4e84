"""How fast are the load engines by themselves, without a control plane?

Drives the senders or the receivers of one process and reports messages, time, CPU (all threads, from the kernel's
accounting) and the share that took the batch path. Starts no process and judges nothing.
"""

import math
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.stalls import STALL
from crescendo.load.protocols.registry import driver_of
from crescendo.model.errors import PeerError
from crescendo.model.payload import PayloadSize
from crescendo.model.profile import ConstantProfile
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import RECEIVED, SENT, TABLES
from crescendo.record.writer import RowSink

READY_TIMEOUT_S = 10.0
_DRAIN_NS = 60 * 10**9
_LEAD_NS = 50_000_000  # as in a run, where everything is prepared before the first message is due
_CONSTANT = ConstantProfile()
_TIME_COLUMNS = {SENT: "sent_ns", RECEIVED: "received_ns"}


class TrialResult(Struct, frozen=True):
    """What one side did, from its first message to its last. A run is the messages of one read or one write."""

    messages: int
    seconds: float
    cpu_seconds: float
    batch_share: float
    runs: int
    lateness_p50_ns: float | None = None  # of paced senders
    lateness_p99_ns: float | None = None
    stalled_seconds: float = 0.0  # our loop did not turn: somebody else had the core, or stopped us

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def rate_without_stalls(self) -> float:
        """What the rate would have been if our loop had always turned."""
        turning_s = self.seconds - self.stalled_seconds
        return self.messages / turning_s if turning_s > 0 else math.inf

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.messages * 1e6 if self.messages else 0.0

    @property
    def run_length(self) -> float:
        return self.messages / self.runs if self.runs else 0.0


class CountingSink(RowSink):
    """Counts the reads or writes that pass through to a log, if there is one, and notes their times."""

    def __init__(self, table: str, log: RowSink | None) -> None:
        self._table = table
        self._time = [column.name for column in TABLES[table]].index(_TIME_COLUMNS[table])
        self._log = log
        self.first_ns = self.last_ns = 0
        self.runs = 0

    @property
    def seconds(self) -> float:
        """Seconds from the first message to the last."""
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def elapsed(self) -> float:
        """Seconds since the first message; 0 before it."""
        return (time.monotonic_ns() - self.first_ns) / 1e9 if self.first_ns else 0.0

    def append(self, table: str, rows: int, *columns: Any) -> None:
        if table == self._table:
            times_ns = columns[self._time]
            if isinstance(times_ns, np.ndarray):  # of several reads
                self._count(int(times_ns.min()), int(times_ns.max()), 1 + int(np.count_nonzero(np.diff(times_ns))))
            else:
                self._count(times_ns, times_ns, 1)
        if self._log is not None:
            self._log.append(table, rows, *columns)

    def append_one(self, table: str, *values: int) -> None:
        if table == self._table:
            self._count(values[self._time], values[self._time], 1)
        if self._log is not None:
            self._log.append_one(table, *values)

    def _count(self, first_ns: int, last_ns: int, runs: int) -> None:
        self.runs += runs
        # Paced messages are recorded up to a second after they were sent, per connection, so not in order.
        self.first_ns = min(self.first_ns or first_ns, first_ns)
        self.last_ns = max(self.last_ns, last_ns)

    def tick(self, now_ns: int) -> None:
        if self._log is not None:
            self._log.tick(now_ns)


class StopControl:
    """A control that stops an engine on a condition, sums up its stalls and ignores its reports."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.should_stop = stop
        self._stalls: list[tuple[int, int]] = []  # from and to

    def report(self, statistics: Statistics) -> None:
        pass

    def event(self, kind: str, detail: dict[str, object]) -> None:
        if kind != STALL:
            raise PeerError(f"{kind}: {detail}")
        from_ns = int(str(detail["from_ns"]))
        # Several short stalls of a second are one event; together they are as long as this.
        self._stalls.append((from_ns, from_ns + int(str(detail.get("total_ns", detail["duration_ns"])))))

    def stalled_ns(self, first_ns: int, last_ns: int) -> int:
        """For how long the engine stood still between two times."""
        return sum(max(min(to_ns, last_ns) - max(from_ns, first_ns), 0) for from_ns, to_ns in self._stalls)


def unpaced_group(protocol: str, size: int) -> Group:
    """One sender and one receiver, neither paced nor settled: the least work per message."""
    return Group(protocol=protocol, size=PayloadSize.fixed(size), rate=0, settle=Settle.AT_MOST_ONCE)


def send(
    url: str, group: Group, quota: Quota, *, tag: int, log: RowSink | None = None, batching: bool = True
) -> TrialResult:
    """Run all senders of the group until the quota is used up and everything is settled."""
    make: Any = driver_of(group.protocol, "sender")
    channels = _await_ready([make(url, group, batching=batching) for _ in range(group.senders)])
    sink = CountingSink("sent", log)
    senders = [
        Sender(n, group, _CONSTANT.pacer(group.rate, 0, n), quota, channel, tag) for n, channel in enumerate(channels)
    ]
    control = StopControl(lambda: False)
    engine = SenderEngine(senders, sink, control, drain_ns=_DRAIN_NS)
    cpu_before = cpu_seconds()
    try:
        statistics = engine.run(time.monotonic_ns() + _LEAD_NS)
    finally:
        cpu = cpu_seconds() - cpu_before
        engine.close(timeout_s=0)  # a null server never answers a close
    return _trial_result(statistics, cpu, sink, control)


def receive(
    url: str,
    group: Group,
    *,
    tag: int,
    stop: Callable[[float], bool],
    on_ready: Callable[[], None] = lambda: None,
    log: RowSink | None = None,
    batching: bool = True,
) -> TrialResult:
    """Run all receivers of the group until `stop` returns True; its argument is the seconds since the first message."""
    make: Any = driver_of(group.protocol, "receiver")
    channels = _await_ready([make(url, group, batching=batching) for _ in range(group.receivers)])
    sink = CountingSink("received", log)
    receivers = [Receiver(number, group, channel) for number, channel in enumerate(channels)]
    control = StopControl(lambda: stop(sink.elapsed))
    engine = ReceiverEngine(receivers, sink, control, tag=tag)
    on_ready()
    cpu_before = cpu_seconds()
    try:
        statistics = engine.run()
    finally:
        cpu = cpu_seconds() - cpu_before
        engine.close(timeout_s=0)  # a null server never answers a close
    return _trial_result(statistics, cpu, sink, control)


def _trial_result(statistics: Statistics, cpu: float, sink: CountingSink, control: StopControl) -> TrialResult:
    own = statistics.values
    return TrialResult(
        statistics.messages,
        sink.seconds,
        cpu,
        own.batch_share or 0.0,
        sink.runs,
        own.lateness_p50_ns,
        own.lateness_p99_ns,
        control.stalled_ns(sink.first_ns, sink.last_ns) / 1e9,
    )


def cpu_seconds() -> float:
    """The CPU time that the kernel has charged to this process, all threads included."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _await_ready(channels: list[Any]) -> list[Any]:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while waiting := [channel for channel in channels if not channel.ready]:
        for channel in waiting:
            channel.flush()
            list(channel.pump())
            if channel.closed is not None:
                raise PeerError(channel.closed)
        if time.monotonic() > deadline:
            raise PeerError(f"{len(waiting)} connection(s) had no answer within {READY_TIMEOUT_S:g} s")
        time.sleep(0.001)
    return channels
