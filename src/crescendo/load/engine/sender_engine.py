"""How does one process send every message when it is due, whatever happened to the earlier ones?

One loop drives all sending connections of a process. It wakes those whose time has come, sends what is due, and waits
until the next message is due or something arrives. When a connection is blocked (no credit, full socket) its messages
stay due and keep their intended times, so a stall shows in every one of them; the same when it is lost and reconnected.
Decides nothing about the run: `Control` says when to stop.
"""

import heapq
import itertools
import select
import time
from collections.abc import Callable

from crescendo.control.notes import Statistics
from crescendo.load.engine.echo import record_round_trips
from crescendo.load.engine.engine_control import Control
from crescendo.load.engine.graceful_close import CLOSE_TIMEOUT_S, close_gracefully
from crescendo.load.engine.loop_clock import LoopClock
from crescendo.load.engine.read_coalescing import ReadCoalescer
from crescendo.load.engine.reconnect import ConnectionChange, DialPool
from crescendo.load.engine.sender import Idle, NoRoom, Sender, SendNow
from crescendo.load.engine.sender_poller import SenderPoller
from crescendo.load.engine.sender_report import SenderReport
from crescendo.load.engine.stalls import STALL_NS, StallLog
from crescendo.load.engine.stamped_batch import QUANTUM_NS, StampedBatch
from crescendo.model.pacer import Pacer
from crescendo.record.writer import RowSink

_IDLE_WAIT_NS = 50_000_000
_HELD_WAIT_NS = 5_000_000  # a wait that lasts longer shows that this process was stopped or starved meanwhile
_HOUSEKEEPING_NS = 100_000_000
_REPORT_NS = 1_000_000_000
_FIRST_REPORT_NS = 500_000_000  # sooner than the others: somebody may be watching


class SenderEngine:
    """Drives the senders of one process."""

    def __init__(
        self, senders: list[Sender], log: RowSink, control: Control, *, drain_ns: int, epoll: select.epoll | None = None
    ) -> None:
        self._senders = senders
        self._log = log
        self._control = control
        self._drain_ns = drain_ns
        unpaced = all(sender.group.unpaced for sender in senders)
        self._coalescer = ReadCoalescer(unpaced=unpaced)
        self._poller = SenderPoller(epoll, precise=not unpaced)
        self._dial_pool = DialPool()
        self._stalls = StallLog(control.event)
        self._clock = LoopClock(time.monotonic_ns(), self._stalls)
        self._report = SenderReport(senders, self._stalls)
        self._due_heap: list[tuple[int, int]] = []  # when the next message is due, and the index of its connection
        self._scheduled: set[int] = set()  # connections in that heap
        self._runnable: set[int] = set()  # connections that may be able to send right now
        self._batches: list[StampedBatch] = []  # one per connection, once running
        for index, sender in enumerate(senders):
            self._attach_channel(index)
            if sender.replies is not None:
                self._poller.watch_replies(sender.replies.channel.fileno(), index)

    def run(self, t0_ns: int) -> Statistics:
        """Send everything that is due from t0 on, wait for settlements, and return the final statistics."""
        self._start(t0_ns)
        now_ns = time.monotonic_ns()
        self._report.start(t0_ns, now_ns)
        next_housekeeping_ns = now_ns
        next_report_ns = max(now_ns, t0_ns) + _FIRST_REPORT_NS
        finished_sending_ns: int | None = None
        while True:
            now_ns = time.monotonic_ns()
            self._send_due(now_ns)
            self._poll(self._wake_up_ns(now_ns))
            if now_ns >= next_housekeeping_ns:
                next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
                self._housekeep(now_ns)
                if self._control.should_stop():
                    break
            if now_ns >= next_report_ns:
                next_report_ns += _REPORT_NS
                self._control.report(self.statistics(now_ns))
                self._log.tick(now_ns)
                self._stalls.tick(now_ns)
            if not self._due_heap and not self._runnable and all(sender.exhausted for sender in self._senders):
                finished_sending_ns = finished_sending_ns or now_ns
                if all(sender.drained() for sender in self._senders) or now_ns - finished_sending_ns > self._drain_ns:
                    break
        for batch in self._batches:
            batch.discard()
        for index, sender in enumerate(self._senders):
            if sender.connection.in_handshake:  # a new connection sends once it is ready, and may have sent all
                self._maintain(index, sender, time.monotonic_ns())
        self._stalls.close()
        return self.statistics(time.monotonic_ns())

    def change_pacers(self, changed: Callable[[Sender], tuple[Pacer, int]]) -> None:
        """Give every connection another pacer, and the number of messages that it sends in all.

        Up to now each new pacer must agree with the one before.
        """
        for sender, batch in zip(self._senders, self._batches, strict=True):
            batch.discard()  # its messages were prepared for their old times
            sender.schedule.change(*changed(sender))
        self._due_heap, self._scheduled = [], set()
        self._runnable = set(range(len(self._senders)))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        self._dial_pool.close()
        close_gracefully((channel for sender in self._senders for channel in sender.channels), timeout_s)
        self._poller.close()

    @property
    def failure(self) -> str | None:
        """Why no connection can send any more, or None while one can."""
        return None if any(not sender.connection.lost for sender in self._senders) else self._senders[0].channel.closed

    def statistics(self, now_ns: int) -> Statistics:
        for batch in self._batches:
            batch.commit()
        return self._report.statistics(now_ns, {index for due_ns, index in self._due_heap if due_ns > now_ns})

    # -- the hot path --------------------------------------------------------------------------------------------

    def _send_due(self, now_ns: int) -> None:
        """Send what is due on the connections whose time has come or that may be unblocked."""
        runnable, self._runnable = self._runnable, set()
        due_heap = self._due_heap
        used_up, sent_prepared = [], False
        while due_heap and due_heap[0][0] <= now_ns:
            index = due_heap[0][1]
            batch = self._batches[index]
            next_ns = batch.send_due(now_ns)
            sent_prepared = True
            if next_ns:
                heapq.heapreplace(due_heap, (next_ns, index))
                if batch.used_up:
                    used_up.append(batch)
            else:
                heapq.heappop(due_heap)
                self._scheduled.discard(index)
                runnable.add(index)
        if sent_prepared and (ended_ns := time.monotonic_ns()) - now_ns > STALL_NS:
            self._find_interrupted_write(now_ns, ended_ns)
        for index in runnable:
            self._offer(index, now_ns)
        for batch in used_up:  # only after everything due was sent
            batch.renew(now_ns)

    def _offer(self, index: int, now_ns: int) -> None:
        """Let a connection decide what to do, and do it."""
        sender, batch = self._senders[index], self._batches[index]
        if batch.prepared:
            batch.commit()
        offer = sender.offer(now_ns)
        if isinstance(offer, Idle):
            if offer.due_ns is not None:
                self._wake_at(index, offer.due_ns)
            else:
                sender.window.unblock(self._clock.looked_ns)
            return
        if batch.prepared:
            batch.discard()  # records what was sent now: a block may last long
        if isinstance(offer, NoRoom):
            self._block(sender)
            return
        if sender.window.is_waiting:
            sender.window.unblock(self._clock.looked_ns)
        if isinstance(offer, SendNow):
            self._send(index, sender, offer)
        else:
            sender.window.wait()
            self._wake_at(index, offer.until_ns)

    def _send(self, index: int, sender: Sender, offer: SendNow) -> None:
        sent = sender.send(offer.messages)
        if offer.messages < min(offer.due, sender.channel.capacity):
            self._block(sender)  # now rather than after the next poll
        elif offer.due > sent or not sender.schedule.bounded:
            self._runnable.add(index)
        elif not sender.schedule.finished:
            self._wake_at(index, sender.schedule.due_ns(sender.schedule.next_seq))

    def _block(self, sender: Sender) -> None:
        """Nothing may be sent, and its messages stay due. An event on its socket makes it runnable again."""
        if sender.connection.lost:
            sender.window.unblock(self._clock.looked_ns)
            return
        sender.window.block(time.monotonic_ns())
        if not sender.channel.flush():
            self._watch_writable(sender, True)

    def _wake_at(self, index: int, due_ns: int) -> None:
        if index not in self._scheduled:
            self._scheduled.add(index)
            heapq.heappush(self._due_heap, (due_ns, index))

    def _wake_up_ns(self, now_ns: int) -> int:
        """When to go on: at the next due time, but after at least a quantum, because short waits cost CPU.

        Counted from the start of this round of sending, so that the round itself does not delay the next one.
        """
        if self._runnable:
            return 0
        wait_ns = max(self._due_heap[0][0] - now_ns, QUANTUM_NS) if self._due_heap else _IDLE_WAIT_NS
        if wait_ns > _HELD_WAIT_NS:
            is_held = any(sender.window.is_waiting for sender in self._senders)
            wait_ns = min(wait_ns, _HELD_WAIT_NS if is_held else _IDLE_WAIT_NS)
        return now_ns + wait_ns

    def _find_interrupted_write(self, begun_ns: int, ended_ns: int) -> None:
        """The round was held up. A prepared message whose write was interrupted has a send time that is too early."""
        sent = sorted(
            (batch.last_unlogged_ns, index)
            for index, batch in enumerate(self._batches)
            if batch.last_unlogged_ns >= begun_ns
        )
        for (sent_ns, index), (next_ns, _) in itertools.pairwise([*sent, (ended_ns, 0)]):
            if next_ns - sent_ns > STALL_NS:
                self._batches[index].interrupted(sent_ns, next_ns - sent_ns)

    def _poll(self, until_ns: int) -> None:
        pause_s = 0.0
        if until_ns and self._coalescer.unpaced:  # for paced load, `_smallest_window` would only cost time
            pause_s = self._coalescer.pause_s(time.monotonic_ns(), self._smallest_window)
            if pause_s:
                time.sleep(pause_s)
        poller = self._poller
        for number, mask in poller.wait(until_ns, self._clock, int(pause_s * 1e9)):
            if number in poller.replies:
                self._take_replies(poller.replies[number])
                continue
            index = poller.senders[number]
            sender = self._senders[index]
            if mask & select.EPOLLOUT and sender.channel.flush():
                self._watch_writable(sender, False)
                sender.window.became_readable(self._clock.writable_ns)
            if mask & ~select.EPOLLOUT:
                outcomes = sender.pump()
                for outcome in outcomes:
                    messages, latency_ns = sender.settled.add(outcome, sender.channel.read_ns)
                    if messages:
                        self._coalescer.add(messages, latency_ns)
            if sender.window.is_waiting:
                self._runnable.add(index)

    @property
    def _smallest_window(self) -> int:
        """The number of messages in flight on the connection with the fewest."""
        return min([sender.window.in_flight for sender in self._senders if sender.window.in_flight], default=0)

    def _take_replies(self, index: int) -> None:
        sender = self._senders[index]
        if sender.replies is None:
            return
        if sender.window.is_held:
            sender.window.became_readable(sender.replies.channel.oldest_unread_ns())
        record_round_trips(self._log, sender.number, sender.replies.take(), scheduled=sender.schedule.bounded)
        self._runnable.add(index)

    # -- housekeeping --------------------------------------------------------------------------------------------

    def _start(self, t0_ns: int) -> None:
        for sender in self._senders:
            sender.start(t0_ns, self._log, self._report.own_delay)
            if sender.replies is not None:
                sender.replies.channel.begin()
        self._batches = [sender.batch for sender in self._senders]
        self._due_heap = [(t0_ns, index) for index in range(len(self._senders))]
        self._scheduled = set(range(len(self._senders)))
        for batch in self._batches:
            batch.renew(t0_ns)
        self._clock = LoopClock(time.monotonic_ns(), self._stalls)
        while (now_ns := time.monotonic_ns()) < t0_ns:
            self._poll(min(t0_ns, now_ns + _IDLE_WAIT_NS))

    def _watch_writable(self, sender: Sender, wanted: bool) -> None:
        if sender.channel.closed is None:
            self._poller.watch_writable(sender.channel.fileno(), wanted)

    def _housekeep(self, now_ns: int) -> None:
        for index, sender in enumerate(self._senders):
            sender.channel.keep_alive(now_ns)
            sender.limit_waiting(now_ns)
            if sender.window.is_waiting:
                self._runnable.add(index)  # its quota may have ended by time alone
            if sender.replies is not None:
                sender.replies.channel.keep_alive(now_ns)
                sender.replies.channel.flush()
            self._maintain(index, sender, now_ns)

    def _maintain(self, index: int, sender: Sender, now_ns: int) -> None:
        """Handle a lost connection, or the progress of its replacement."""
        match sender.connection.step(now_ns, self._dial_pool):
            case ConnectionChange.LOST:
                sender.batch.discard()
                self._control.event("disconnect", {"sender": sender.number, "reason": sender.connection.reason})
                # It will not send again, so its next due time must not wake the engine.
                self._due_heap = [entry for entry in self._due_heap if entry[1] != index]
                heapq.heapify(self._due_heap)
                self._scheduled.discard(index)
                self._runnable.add(index)
            case ConnectionChange.INTERRUPTED:
                unsettled = sender.interrupt()
                detail = {"sender": sender.number, "reason": sender.connection.reason, "unsettled": unsettled}
                self._control.event("disconnect", detail)
                self._runnable.add(index)
            case ConnectionChange.DIALLED:
                self._attach_channel(index)
            case ConnectionChange.RESTORED:
                self._control.event("reconnect", {"sender": sender.number})
                self._runnable.add(index)

    def _attach_channel(self, index: int) -> None:
        """Start to poll a new connection."""
        channel = self._senders[index].channel
        self._poller.watch_sender(channel.fileno(), index)
        channel.flush()  # its handshake is still to be written
