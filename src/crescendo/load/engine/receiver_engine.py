"""What arrived, when, and was it ours?

One loop drives all receiving connections of a process. Each read yields batches; their stamps become rows, with one
receive time a read. Which rows, `intake.py` knows.
"""

import heapq
import select
import time
from collections.abc import Callable, Iterator

from crescendo.control.notes import Statistics
from crescendo.load.engine.echo import EchoResponder
from crescendo.load.engine.graceful_close import PATIENCE_S, close_gracefully
from crescendo.load.engine.read_coalescing import ReadCoalescer
from crescendo.load.engine.received_rows import ReceivedRows, ReceiverCounts
from crescendo.load.engine.reconnect import ConnectionChange, DialPool, ReconnectingChannel
from crescendo.load.engine.sender_engine import Control
from crescendo.load.engine.statistics import RateMeter, known
from crescendo.load.engine.summarizer import Summarizer
from crescendo.load.protocols.interfaces import LoadChannel, ReceiveChannel
from crescendo.model.workload import Group
from crescendo.record.writer import RowSink

_WAIT_S = 0.05
_CATCH_UP_S = 0.005  # of silence, and there is time for what was put aside
_HOUSEKEEPING_NS = 50_000_000
_REPORT_NS = 1_000_000_000
_DRAIN_REPORT_NS = 100_000_000


class Receiver:
    """One receiving connection."""

    def __init__(
        self,
        number: int,
        group: Group,
        channel: ReceiveChannel,
        *,
        redial: Callable[[int], ReceiveChannel] | None = None,
        summarizer: Summarizer | None = None,
        echo: EchoResponder | None = None,
    ) -> None:
        self.number = number
        self.group = group
        self.line = ReconnectingChannel(channel, redial, seed=number)
        self.summarizer = summarizer
        self.echo = echo
        self.consuming_ns = group.consuming_ns
        self.resume_ns = 0  # busy with what it took until then
        self.tally = ReceiverCounts(number)
        self.watched = 0

    @property
    def channel(self) -> ReceiveChannel:
        return self.line.channel

    @property
    def channels(self) -> Iterator[LoadChannel]:
        """All that it holds: its own, and those on which it answers or sums up."""
        yield self.channel
        if self.summarizer is not None:
            yield self.summarizer.channel
        if self.echo is not None:
            yield from self.echo.channels.values()


class ReceiverEngine:
    """Drives the receivers of one process."""

    def __init__(self, receivers: list[Receiver], log: RowSink, control: Control, *, tag: int) -> None:
        self._receivers = receivers
        self._log = log
        self._control = control
        self._busy_ns = 0
        self._waited_ns = 0
        self._epoll = select.epoll()
        self._by_file: dict[int, Receiver] = {}
        self._busy: list[tuple[int, int]] = []  # a heap: when a slow receiver is done, and which (its place)
        self._diallers = DialPool()
        unhurried = all(receiver.group.unpaced for receiver in receivers)
        self._gathering = ReadCoalescer(unhurried=unhurried)
        self._intake = ReceivedRows(log, tag, unhurried=unhurried)
        self._window = min((receiver.channel.window for receiver in receivers), default=0)
        self._pulse = RateMeter(time.monotonic_ns())
        self.draining = False
        self._answering: dict[int, Receiver] = {}
        for receiver in receivers:
            self._adopt(receiver)
            for channel in receiver.echo.channels.values() if receiver.echo is not None else ():
                self._answering[channel.fileno()] = receiver
                self._epoll.register(channel.fileno(), select.EPOLLIN)

    def run(self) -> Statistics:
        """Receive until told to stop."""
        now_ns = time.monotonic_ns()
        self._pulse = RateMeter(now_ns)
        next_housekeeping_ns = now_ns
        last_report_ns = now_ns
        for receiver in self._receivers:
            if receiver.summarizer is not None:
                receiver.summarizer.begin(now_ns)
            self._begin(receiver)
        while True:
            self._poll()
            now_ns = time.monotonic_ns()
            self._resume(now_ns)
            if now_ns >= next_housekeeping_ns:
                next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
                self._housekeep(now_ns)
                if self._control.should_stop():
                    break
            if now_ns - last_report_ns >= (_DRAIN_REPORT_NS if self.draining else _REPORT_NS):
                last_report_ns = now_ns
                self._control.report(self.statistics(now_ns))
                self._log.tick(now_ns)
        ended_ns = time.monotonic_ns()
        for receiver in self._receivers:
            if receiver.summarizer is not None:
                receiver.summarizer.end(ended_ns)
        return self.statistics(ended_ns)

    def close(self, patience_s: float = PATIENCE_S) -> None:
        self._diallers.close()
        close_gracefully((channel for receiver in self._receivers for channel in receiver.channels), patience_s)
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        return None if any(not one.line.lost for one in self._receivers) else self._receivers[0].channel.closed

    def _poll(self) -> None:
        if pause_s := self._gathering.pause_s(time.monotonic_ns(), self._window):
            time.sleep(pause_s)
        before_ns = time.monotonic_ns()
        wait_s = _WAIT_S if not self._busy else min(max((self._busy[0][0] - before_ns) / 1e9, 0.0), _WAIT_S)
        if self._intake.behind:
            wait_s = min(wait_s, _CATCH_UP_S)
        ready = self._epoll.poll(wait_s)
        woken_ns = time.monotonic_ns()
        if not ready:
            self._catch_up()
        for number, mask in ready:
            answering = self._answering.get(number)
            if answering is not None and answering.echo is not None:
                answering.echo.tend(woken_ns)
                continue
            receiver = self._by_file.get(number)
            if receiver is None or receiver.channel.closed is not None:
                continue
            if mask & ~select.EPOLLOUT and not receiver.resume_ns:
                self._pump(receiver)
            if receiver.channel.closed is None:
                self._watch(receiver, writable=not receiver.channel.flush())
        self._waited_ns += woken_ns - before_ns
        self._busy_ns += time.monotonic_ns() - woken_ns

    def _pump(self, receiver: Receiver) -> None:
        """Take what has arrived; settle it at once, or when a slow receiver is done with it."""
        before = receiver.tally.arrivals
        for arrived in receiver.channel.pump():
            self._intake.take(receiver.tally, arrived, receiver.channel.read_ns)
            if receiver.summarizer is not None:
                receiver.summarizer.take(arrived.payloads)
            if receiver.echo is not None:
                receiver.echo.answer(arrived.payloads, time.monotonic_ns())
        taken = receiver.tally.arrivals - before
        self._gathering.add(taken, self._intake.response_ns)
        if taken and receiver.consuming_ns:
            receiver.resume_ns = receiver.channel.read_ns + taken * receiver.consuming_ns
            heapq.heappush(self._busy, (receiver.resume_ns, self._receivers.index(receiver)))
            self._watch(receiver, writable=False)
        else:
            receiver.channel.settle()

    def _resume(self, now_ns: int) -> None:
        """Slow receivers that are done with what they took turn to what has arrived meanwhile."""
        while self._busy and self._busy[0][0] <= now_ns:
            receiver = self._receivers[heapq.heappop(self._busy)[1]]
            receiver.resume_ns = 0
            if receiver.channel.closed is None:
                receiver.channel.settle()
                self._watch(receiver, writable=not receiver.channel.flush())
                if receiver.channel.pending:
                    self._pump(receiver)

    def _watch(self, receiver: Receiver, *, writable: bool) -> None:
        mask = (0 if receiver.resume_ns else select.EPOLLIN) | (select.EPOLLOUT if writable else 0)
        if receiver.channel.closed is None and mask != receiver.watched:
            receiver.watched = mask
            self._epoll.modify(receiver.channel.fileno(), mask)

    def _housekeep(self, now_ns: int) -> None:
        self._catch_up()
        for receiver in self._receivers:
            if receiver.resume_ns and receiver.channel.closed is None:
                receiver.channel.read_ns = now_ns  # who does not listen cannot complain of silence
            receiver.channel.keep_alive(now_ns)
            if receiver.summarizer is not None:
                receiver.summarizer.tick(now_ns)
            if receiver.echo is not None:
                receiver.echo.tend(now_ns)
            self._tend(receiver, now_ns)

    def _tend(self, receiver: Receiver, now_ns: int) -> None:
        """See to a connection that was lost."""
        match receiver.line.step(now_ns, self._diallers):
            case ConnectionChange.LOST | ConnectionChange.INTERRUPTED:
                self._control.event("disconnect", {"receiver": receiver.number, "reason": receiver.line.reason})
            case ConnectionChange.DIALLED:
                self._adopt(receiver)
            case ConnectionChange.RESTORED:
                self._control.event("reconnect", {"receiver": receiver.number})
                self._begin(receiver)

    def _adopt(self, receiver: Receiver) -> None:
        """Watch over a connection that is new."""
        self._by_file[receiver.channel.fileno()] = receiver
        receiver.watched = select.EPOLLIN
        self._epoll.register(receiver.channel.fileno(), select.EPOLLIN)
        receiver.channel.flush()  # a new one has its greeting still to say

    def _begin(self, receiver: Receiver) -> None:
        receiver.channel.begin()
        if receiver.channel.pending:
            self._pump(receiver)

    def _catch_up(self) -> None:
        """Record what was put aside at full speed."""
        if self._intake.behind:
            for receiver in self._receivers:
                self._intake.catch_up(receiver.tally)

    def statistics(self, now_ns: int) -> Statistics:
        self._catch_up()
        counts: dict[str, int] = {}
        for receiver in self._receivers:
            counts[receiver.group.shared_address] = (
                counts.get(receiver.group.shared_address, 0) + receiver.tally.arrivals
            )
        messages = sum(counts.values())
        rate, cores = self._pulse.sample(now_ns, messages)
        batched = sum(receiver.tally.batched for receiver in self._receivers)
        p99_ns = self._intake.response.fold(99.0)
        values = {
            "second_response_p90_ns": self._intake.response.latest(90.0),
            "second_response_max_ns": self._intake.response.latest(100.0),
            "busy_share": self._busy_ns / max(self._busy_ns + self._waited_ns, 1),
            "batch_share": batched / messages if messages else None,
            "cpu_seconds": time.process_time(),
        }
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, known(values))
