"""How does one process receive on all its connections and record every message?

One loop drives all receiving connections. Each read yields batches; their stamps become rows, with one receive time per
read. `received_rows.py` decides which rows.
"""

import heapq
import math
import select
import time
from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET

from crescendo.control.notes import Statistics
from crescendo.load.assignment import SliceMembers
from crescendo.load.engine.echo import EchoResponder
from crescendo.load.engine.engine_control import Control
from crescendo.load.engine.graceful_close import CLOSE_TIMEOUT_S, close_gracefully
from crescendo.load.engine.loop_clock import LoopClock
from crescendo.load.engine.read_coalescing import ReadCoalescer
from crescendo.load.engine.read_delay import ReadDelay
from crescendo.load.engine.received_rows import ReceiverCounts, Tags
from crescendo.load.engine.reconnect import ConnectionChange, DialPool, ReconnectingChannel
from crescendo.load.engine.sliced_rows import rows_of
from crescendo.load.engine.stalls import StallLog
from crescendo.load.engine.statistics import RateMeter
from crescendo.load.engine.summarizer import Summarizer
from crescendo.load.protocols.interfaces import LoadChannel, ReceiveChannel
from crescendo.model.peer_statistics import receiver_statistics
from crescendo.model.workload import Group
from crescendo.record.schema import READ_DELAY_FLOOR_NS, STRAYS
from crescendo.record.writer import RowSink

_WAIT_S = 0.005  # a wait that lasts longer shows that this process was stopped or starved meanwhile
_IDLE_FLUSH_S = 0.005  # after this long without a message there is time to record deferred ones
_HOUSEKEEPING_NS = 50_000_000
_REPORT_NS = 1_000_000_000
_FIRST_REPORT_NS = 500_000_000
"""Sooner than the others: somebody may be watching."""

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
        self.connection = ReconnectingChannel(channel, redial, seed=number)
        self.summarizer = summarizer
        self.echo = echo
        self.consuming_ns = group.consuming_ns
        self.resume_ns = 0  # until then it is busy with what it has received
        self.counts = ReceiverCounts(number)
        self.read_delay = ReadDelay(number)
        self.epoll_mask = 0

    @property
    def channel(self) -> ReceiveChannel:
        return self.connection.channel

    @property
    def channels(self) -> Iterator[LoadChannel]:
        """All its connections: its own, and those for echoes and summaries."""
        yield self.channel
        if self.summarizer is not None:
            yield self.summarizer.channel
        if self.echo is not None:
            yield from self.echo.channels.values()


class ReceiverEngine:
    """Drives the receivers of one process."""

    def __init__(
        self,
        receivers: list[Receiver],
        log: RowSink,
        control: Control,
        *,
        tag: int,
        held_before: int = 0,
        limited: Mapping[str, SliceMembers] | None = None,
    ) -> None:
        self._receivers = receivers
        self._held_before = held_before
        self._log = log
        self._control = control
        self._busy_ns = 0
        self._waited_ns = 0
        self._epoll = select.epoll()
        self._by_fileno: dict[int, Receiver] = {}
        self._busy: list[tuple[int, int]] = []  # a heap: when a slow receiver is done, and its index
        self._dial_pool = DialPool()
        unpaced = all(receiver.group.unpaced for receiver in receivers)
        self._coalescer = ReadCoalescer(unpaced=unpaced)
        self._rows = rows_of(log, tag, limited or {}, unpaced=unpaced)
        self._window = min((receiver.channel.window for receiver in receivers), default=0)
        self._rate_meter = RateMeter(time.monotonic_ns())
        self._stalls = StallLog(control.event)
        self._clock = LoopClock(time.monotonic_ns(), self._stalls)
        self.draining = False
        self._echo_by_fileno: dict[int, Receiver] = {}
        for receiver in receivers:
            self._attach_channel(receiver)
            for channel in receiver.echo.channels.values() if receiver.echo is not None else ():
                self._echo_by_fileno[channel.fileno()] = receiver
                self._epoll.register(channel.fileno(), select.EPOLLIN)

    def run(self, t0_ns: int = 0) -> Statistics:
        """Receive until `Control` asks to stop. The first message is due at `t0_ns`."""
        now_ns = time.monotonic_ns()
        begin_ns = max(now_ns, t0_ns)
        self._rate_meter = RateMeter(begin_ns)
        self._clock = LoopClock(now_ns, self._stalls)
        next_housekeeping_ns = now_ns
        last_report_ns = begin_ns + _FIRST_REPORT_NS - _REPORT_NS
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
                self._stalls.tick(now_ns)
        self._stalls.close()
        self._flush_deferred()
        for address, tags in self._foreign().items():
            self._control.event(STRAYS, {"address": address, "tags": tags})
        ended_ns = time.monotonic_ns()
        for receiver in self._receivers:
            if receiver.summarizer is not None:
                receiver.summarizer.end(ended_ns)
        return self.statistics(ended_ns)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        self._dial_pool.close()
        close_gracefully((channel for receiver in self._receivers for channel in receiver.channels), timeout_s)
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        return None if any(not one.connection.lost for one in self._receivers) else self._receivers[0].channel.closed

    def _poll(self) -> None:
        before_ns = time.monotonic_ns()
        if pause_s := self._coalescer.pause_s(before_ns, self._window):
            time.sleep(pause_s)
            before_ns = time.monotonic_ns()
        paused_ns = int(pause_s * 1e9)
        wait_s = _WAIT_S if not self._busy else min(max((self._busy[0][0] - before_ns) / 1e9, 0.0), _WAIT_S)
        if self._rows.deferred:
            wait_s = min(wait_s, _IDLE_FLUSH_S)
        meant_ns = math.ceil(wait_s * 1e3) * 1_000_000  # an epoll waits in whole milliseconds
        meant_ns = self._clock.wait_ns(before_ns, meant_ns, paused_ns)
        ready = self._epoll.poll(meant_ns / 1e9)
        woken_ns = time.monotonic_ns()
        self._clock.woken(before_ns, meant_ns, woken_ns, found=bool(ready), paused_ns=paused_ns)
        if not ready:
            self._flush_deferred()
        for number, mask in ready:
            answering = self._echo_by_fileno.get(number)
            if answering is not None and answering.echo is not None:
                answering.echo.maintain(woken_ns)
                continue
            receiver = self._by_fileno.get(number)
            if receiver is None or receiver.channel.closed is not None:
                continue
            if mask & ~select.EPOLLOUT and not receiver.resume_ns:
                self._pump(receiver)
            if receiver.channel.closed is None:
                self._watch(receiver, writable=not receiver.channel.flush())
        self._waited_ns += woken_ns - before_ns
        self._busy_ns += time.monotonic_ns() - woken_ns

    def _pump(self, receiver: Receiver) -> None:
        """Record what has arrived; settle it at once, or when a slow receiver has consumed it."""
        before = receiver.counts.arrivals
        clock, delay = self._clock, receiver.read_delay
        in_doubt = delay.unread_ns or clock.woken_ns - clock.looked_ns >= READ_DELAY_FLOOR_NS
        if in_doubt:
            delay.before_read(receiver.channel, clock)
        for arrived in receiver.channel.pump():
            self._rows.take(receiver.counts, arrived, receiver.channel.read_ns)
            if receiver.summarizer is not None:
                receiver.summarizer.take(arrived.payloads)
            if receiver.echo is not None:
                receiver.echo.answer(arrived.payloads, time.monotonic_ns())
        taken = receiver.counts.arrivals - before
        channel = receiver.channel
        if in_doubt or not channel.drained or channel.read_ns - clock.looked_ns >= READ_DELAY_FLOOR_NS:
            delay.after_read(channel, clock, range(before, before + taken), self._log)
        self._coalescer.add(taken, self._rows.response_ns, drained=channel.drained)
        if taken and receiver.consuming_ns:
            receiver.resume_ns = receiver.channel.read_ns + taken * receiver.consuming_ns
            heapq.heappush(self._busy, (receiver.resume_ns, self._receivers.index(receiver)))
            self._watch(receiver, writable=False)
        else:
            receiver.channel.settle()

    def _resume(self, now_ns: int) -> None:
        """Slow receivers that have consumed their messages settle them and read what has arrived meanwhile."""
        while self._busy and self._busy[0][0] <= now_ns:
            receiver = self._receivers[heapq.heappop(self._busy)[1]]
            receiver.read_delay.free_ns, receiver.resume_ns = receiver.resume_ns, 0
            if receiver.channel.closed is None:
                receiver.channel.settle()
                self._watch(receiver, writable=not receiver.channel.flush())
                if receiver.channel.pending:
                    self._pump(receiver)

    def _watch(self, receiver: Receiver, *, writable: bool) -> None:
        mask = (0 if receiver.resume_ns else select.EPOLLIN) | (select.EPOLLOUT if writable else 0)
        if receiver.channel.closed is None and mask != receiver.epoll_mask:
            receiver.epoll_mask = mask
            self._epoll.modify(receiver.channel.fileno(), mask)

    def _housekeep(self, now_ns: int) -> None:
        self._flush_deferred()
        for receiver in self._receivers:
            if receiver.resume_ns and receiver.channel.closed is None:
                receiver.channel.read_ns = now_ns  # it is not reading, so silence says nothing about the system
            receiver.channel.keep_alive(now_ns)
            if receiver.summarizer is not None:
                receiver.summarizer.tick(now_ns)
            if receiver.echo is not None:
                receiver.echo.maintain(now_ns)
            self._maintain(receiver, now_ns)

    def _maintain(self, receiver: Receiver, now_ns: int) -> None:
        """Handle a lost connection, or the progress of its replacement."""
        match receiver.connection.step(now_ns, self._dial_pool):
            case ConnectionChange.LOST | ConnectionChange.INTERRUPTED:
                self._control.event("disconnect", {"receiver": receiver.number, "reason": receiver.connection.reason})
            case ConnectionChange.DIALLED:
                self._attach_channel(receiver)
            case ConnectionChange.RESTORED:
                self._control.event("reconnect", {"receiver": receiver.number})
                self._begin(receiver)

    def _attach_channel(self, receiver: Receiver) -> None:
        """Start to poll a new connection."""
        self._by_fileno[receiver.channel.fileno()] = receiver
        receiver.epoll_mask = select.EPOLLIN
        self._epoll.register(receiver.channel.fileno(), select.EPOLLIN)
        receiver.channel.flush()  # its handshake is still to be written

    def _begin(self, receiver: Receiver) -> None:
        receiver.read_delay.free_ns = time.monotonic_ns()
        receiver.channel.begin()
        if receiver.channel.pending:
            self._pump(receiver)

    def _foreign(self) -> dict[str, Tags]:
        """Address -> what arrived there and is not of this run."""
        found: dict[str, Tags] = {}
        for receiver in self._receivers:
            if receiver.counts.foreign:
                found.setdefault(receiver.group.shared_address, Tags()).update(receiver.counts.foreign)
        return found

    def _flush_deferred(self) -> None:
        """Record the messages that were deferred at full speed."""
        if self._rows.deferred:
            for receiver in self._receivers:
                self._rows.flush_deferred(receiver.counts)

    def statistics(self, now_ns: int) -> Statistics:
        self._flush_deferred()
        counts: dict[str, int] = {}
        for receiver in self._receivers:
            counts[receiver.group.shared_address] = (
                counts.get(receiver.group.shared_address, 0) + receiver.counts.arrivals - receiver.counts.strays
            )
        messages = sum(receiver.counts.arrivals for receiver in self._receivers)
        rate, cores = self._rate_meter.sample(now_ns, messages)
        batched = sum(receiver.counts.batched for receiver in self._receivers)
        p99_ns = self._rows.response.fold(99.0)
        measured = receiver_statistics(
            second_response_p90_ns=self._rows.response.latest(90.0),
            second_response_max_ns=self._rows.response.latest(100.0),
            busy_share=self._busy_ns / max(self._busy_ns + self._waited_ns, 1),
            batch_share=batched / messages if messages else None,
            cpu_seconds=time.process_time(),
            read_delay_max_ns=max(receiver.read_delay.max_ns for receiver in self._receivers),
            stalled_ns=self._stalls.total_ns,
            strays=sum(receiver.counts.strays for receiver in self._receivers),
            held_before=self._held_before,
        )
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, measured, self._rows.last_second() or UNSET)
