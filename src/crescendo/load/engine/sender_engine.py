"""How do messages leave when they are due, whatever became of the earlier ones?

One loop drives all sending connections of a process. It asks each pacer what is due, stamps the batch with the
intended times and the send time, sends, and waits until the next message is due or something arrives. When a
connection is held back (no credit, full socket) its messages stay due and keep their intended times, so a stall shows
in every one of them; the same when it is lost and made anew. Decides nothing about the run: `Control` tells it to stop.
"""

import heapq
import select
import time
from typing import Protocol

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.engine.graceful_close import PATIENCE_S, close_gracefully
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, SettledRange, SettledRanges, Stretch
from crescendo.load.engine.prepared import PreparedMessages
from crescendo.load.engine.read_coalescing import ReadCoalescer
from crescendo.load.engine.reconnect import ConnectionChange, DialPool
from crescendo.load.engine.sender import FEW, PATIENCE_NS, Sender
from crescendo.load.engine.statistics import Distribution, Int64s, RateMeter, known
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.model.workload import STAMP_BYTES
from crescendo.record.schema import SENT, SETTLED, SPANS, Settlement
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import STAMP_NUMBERS, STAMP_NUMBERS_AT

QUANTUM_NS = 250_000
"""So far apart are the times at which messages leave: coming back sooner costs more CPU than the lateness it saves."""

ROUND_TRIP, ONE_WAY = "round trip", "one way"
_IDLE_WAIT_NS = 50_000_000
_HOUSEKEEPING_NS = 100_000_000
_REPORT_NS = 1_000_000_000


class Control(Protocol):
    """Who watches over an engine."""

    def should_stop(self) -> bool: ...

    def report(self, statistics: Statistics) -> None: ...

    def event(self, kind: str, detail: dict[str, object]) -> None: ...


class SenderEngine:
    """Drives the senders of one process."""

    def __init__(
        self, senders: list[Sender], log: RowSink, control: Control, *, drain_ns: int, epoll: select.epoll | None = None
    ) -> None:
        self._senders = senders
        self._log = log
        self._control = control
        self._drain_ns = drain_ns
        self._lateness = Distribution()
        self._epoll = select.epoll() if epoll is None else epoll
        self._by_file: dict[int, int] = {}
        self._diallers = DialPool()
        self._gathering = ReadCoalescer(unhurried=all(sender.group.unpaced for sender in senders))
        self._t0_ns = 0
        self._pulse = RateMeter(time.monotonic_ns())
        self._waiting: list[tuple[int, int]] = []  # a heap: when the next message is due, and on which connection
        self._scheduled: set[int] = set()  # connections in that heap
        self._runnable: set[int] = set()  # connections that may have something to send right now
        self._ahead: list[PreparedMessages] = []  # of each connection, from the start on
        self._by_replies: dict[int, int] = {}
        for index, sender in enumerate(senders):
            self._adopt(index)
            if sender.replies is not None:
                self._by_replies[sender.replies.channel.fileno()] = index
                self._epoll.register(sender.replies.channel.fileno(), select.EPOLLIN)

    def run(self, t0_ns: int) -> Statistics:
        """Send everything that is due from t0 on, wait for what is unsettled, and say how it went."""
        self._t0_ns = t0_ns
        self._ahead = [PreparedMessages(sender, t0_ns, QUANTUM_NS, self._record) for sender in self._senders]
        self._waiting = [(t0_ns, index) for index in range(len(self._senders))]
        self._scheduled = set(range(len(self._senders)))
        for sender in self._senders:
            if sender.replies is not None:
                sender.replies.channel.begin()
        for ahead in self._ahead:
            ahead.renew(t0_ns)
        self._wait_for_start()
        now_ns = time.monotonic_ns()
        self._pulse = RateMeter(now_ns)
        next_housekeeping_ns = now_ns
        next_report_ns = now_ns + _REPORT_NS
        finished_sending_ns: int | None = None
        while True:
            now_ns = time.monotonic_ns()
            self._send_due(now_ns)
            self._poll(self._wait_ns(now_ns))
            if now_ns >= next_housekeeping_ns:
                next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
                self._housekeep(now_ns)
                if self._control.should_stop():
                    break
            if now_ns >= next_report_ns:
                next_report_ns += _REPORT_NS
                self._control.report(self.statistics(now_ns))
                self._log.tick(now_ns)
            if not self._waiting and not self._runnable and all(sender.exhausted for sender in self._senders):
                finished_sending_ns = finished_sending_ns or now_ns
                if all(sender.over() for sender in self._senders) or now_ns - finished_sending_ns > self._drain_ns:
                    break
        for ahead in self._ahead:
            ahead.discard()
        return self.statistics(time.monotonic_ns())

    def close(self, patience_s: float = PATIENCE_S) -> None:
        self._diallers.close()
        close_gracefully((channel for sender in self._senders for channel in sender.channels), patience_s)
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        """Why nobody can send any more, or None while somebody can."""
        return None if any(not sender.line.lost for sender in self._senders) else self._senders[0].channel.closed

    # -- the hot path --------------------------------------------------------------------------------------------

    def _send_due(self, now_ns: int) -> None:
        """Offer their due messages to the connections whose time has come or whose way is free again."""
        runnable, self._runnable = self._runnable, set()
        waiting = self._waiting
        used_up = []
        while waiting and waiting[0][0] <= now_ns:
            index = waiting[0][1]
            ahead = self._ahead[index]
            next_ns = ahead.send(now_ns)
            if next_ns:
                heapq.heapreplace(waiting, (next_ns, index))
                if ahead.used_up:
                    used_up.append(ahead)
            else:
                heapq.heappop(waiting)
                self._scheduled.discard(index)
                runnable.add(index)
        for index in runnable:
            self._offer(index, now_ns)
        for ahead in used_up:  # not before all that is due has left
            ahead.renew(now_ns)

    def _offer(self, index: int, now_ns: int) -> None:
        sender, ahead = self._senders[index], self._ahead[index]
        ahead.commit()
        if sender.group.buffer is not None:
            self._shed(sender, now_ns)
        due = sender.due(now_ns - self._t0_ns)
        if due <= 0:
            if not sender.exhausted:
                self._schedule(index)
            else:
                sender.blocked.stop(now_ns)
        elif (granted := sender.grant(due)) <= 0:
            ahead.discard()  # what has left is recorded now, however long this takes
            self._hold_back(sender, now_ns)
        elif granted < due and sender.too_few(granted, now_ns):
            ahead.discard()
            sender.take_back(granted)
            self._hold_back(sender, now_ns)
            self._return_at(index, sender.last_sent_ns + PATIENCE_NS)
        else:
            ahead.discard()
            if sender.blocked.stop(now_ns):
                sender.free_since_ns = now_ns
            sent = self._send(sender, granted)
            if granted < min(due, sender.channel.capacity):
                self._hold_back(sender, now_ns)  # now rather than after another look at the sockets
            elif due > sent or not sender.pacer.bounded:
                self._runnable.add(index)
            elif sender.next_seq < sender.total:
                self._schedule(index)

    def _hold_back(self, sender: Sender, now_ns: int) -> None:
        """Its messages stay due. An event on its socket makes it runnable again."""
        if sender.line.lost:
            sender.blocked.stop(now_ns)
            return
        sender.blocked.start(now_ns)
        if not sender.channel.flush():
            self._watch(sender, writable=True)

    def _schedule(self, index: int) -> None:
        """Come back to this connection when its next message is due."""
        if index not in self._scheduled:
            sender = self._senders[index]
            self._return_at(index, self._t0_ns + sender.due_ns(sender.next_seq))

    def _return_at(self, index: int, due_ns: int) -> None:
        if index not in self._scheduled:
            self._scheduled.add(index)
            heapq.heappush(self._waiting, (due_ns, index))

    def _send(self, sender: Sender, count: int) -> int:
        """Send at most so many of the messages that are due; how many left."""
        stretch = sender.next_stretch(count)
        if sender.sizes is None:
            self._send_alike(sender, stretch, sender.fixed_size)
            return stretch.length
        sizes = sender.sizes(stretch.first_seq, stretch.length)
        sent = 0
        while sent < stretch.length:
            changes = np.flatnonzero(sizes[sent:] != sizes[sent])
            alike = int(changes[0]) if len(changes) else stretch.length - sent
            sender.channel.resize(int(sizes[sent]))
            room = sender.channel.room()  # no batch may be written anew before its bytes have left
            if room <= 0:
                sender.put_back(stretch._replace(first_seq=stretch.first_seq + sent, length=stretch.length - sent))
                break
            close_gracefully = stretch._replace(first_seq=stretch.first_seq + sent, length=min(alike, room))
            self._write_lines(sender, close_gracefully)
            self._send_alike(sender, close_gracefully, int(sizes[sent]))
            sent += close_gracefully.length
        return sent

    def _write_lines(self, sender: Sender, stretch: Stretch) -> None:
        """The lines of a file behind the stamps, where the group sends such."""
        for row in range(stretch.length if sender.lines else 0):
            line = sender.lines[(stretch.first_seq + row) % len(sender.lines)]
            sender.channel.bodies[row, STAMP_BYTES:] = np.frombuffer(line, np.uint8)

    def _send_alike(self, sender: Sender, stretch: Stretch, size: int) -> None:
        sender.stamp_constants(stretch.length if sender.sizes else sender.channel.capacity)
        if stretch.length <= FEW:
            self._send_few(sender, stretch, size)
        else:
            self._send_many(sender, stretch, size)
        sender.send(stretch.first_seq, stretch.length)

    def _send_few(self, sender: Sender, stretch: Stretch, size: int) -> None:
        """What `_send_many` does, one by one."""
        bounded, seq = sender.pacer.bounded, stretch.first_seq
        sent_ns = time.monotonic_ns()
        for body in sender.first_bodies[: stretch.length]:
            intended_ns = sender.due_ns(seq) + self._t0_ns if bounded else stretch.first_sent_ns or sent_ns
            if bounded and stretch.attempt == FIRST_ATTEMPT:
                self._lateness.add_one(sent_ns - max(intended_ns, sender.free_since_ns))
            STAMP_NUMBERS.pack_into(body, STAMP_NUMBERS_AT, seq, intended_ns, sent_ns)
            self._log.append_one(SENT, sender.number, seq, stretch.attempt, intended_ns, sent_ns, size)
            seq += 1
        sender.mark_sent(stretch, sent_ns)

    def _send_many(self, sender: Sender, stretch: Stretch, size: int) -> None:
        first, count = stretch.first_seq, stretch.length
        numbers = np.arange(first, first + count, dtype=np.int64)
        seqs, times_ns = sender.columns
        seqs[:count] = numbers
        intended_ns: int | Int64s
        if sender.pacer.bounded:
            times_ns[:count, 0] = intended_ns = sender.pacer.due_ns(numbers) + self._t0_ns
            sent_ns = time.monotonic_ns()
            times_ns[:count, 1] = sent_ns
        else:
            sent_ns = time.monotonic_ns()
            times_ns[:count] = sent_ns
            intended_ns = stretch.first_sent_ns or sent_ns
            if stretch.first_sent_ns:
                times_ns[:count, 0] = intended_ns
        self._record(sender, stretch, intended_ns, sent_ns, size)
        sender.mark_sent(stretch, sent_ns)

    def _record(
        self, sender: Sender, stretch: Stretch, intended_ns: int | Int64s, sent_ns: int | Int64s, size: int
    ) -> None:
        """Messages that leave together, or have left one by one."""
        if sender.pacer.bounded and stretch.attempt == FIRST_ATTEMPT:
            # Own lateness: time that the other side held us back is not the generator's fault.
            self._lateness.add(sent_ns - np.maximum(intended_ns, sender.free_since_ns))
        first, count = stretch.first_seq, stretch.length
        self._log.append(
            SENT, count, sender.number, range(first, first + count), stretch.attempt, intended_ns, sent_ns, size
        )  # fmt: skip

    def _shed(self, sender: Sender, now_ns: int) -> None:
        shed = sender.cut_to_buffer(now_ns - self._t0_ns, max(sender.room(), 0))
        if shed:
            self._log.append_one(
                SETTLED, sender.number, shed.start, shed.stop - 1, now_ns, now_ns, int(Settlement.SHED)
            )  # fmt: skip

    def _poll(self, wait_ns: int) -> None:
        if wait_ns > 0 and self._gathering.unpaced:  # else nobody counts what is under way, tick by tick
            pause_s = self._gathering.pause_s(time.monotonic_ns(), self._window)
            if pause_s:
                time.sleep(pause_s)
        # An epoll waits in whole milliseconds, select in microseconds; where that matters, select waits for the epoll.
        if not self._gathering.unpaced and wait_ns > 0:
            if not select.select((self._epoll,), (), (), wait_ns / 1e9)[0]:
                return
            wait_ns = 0
        for number, mask in self._epoll.poll(wait_ns / 1e9):
            if number in self._by_replies:
                self._take_answers(self._by_replies[number])
                continue
            index = self._by_file[number]
            sender = self._senders[index]
            if mask & select.EPOLLOUT and sender.channel.flush():
                self._watch(sender, writable=False)
            if mask & ~select.EPOLLOUT:
                self._ahead[index].commit(revoke=True)
                outcomes = sender.pump()
                if outcomes:
                    self._settle(sender, outcomes, sender.channel.read_ns)
            if sender.blocked.running:
                self._runnable.add(index)

    @property
    def _window(self) -> int:
        """What is under way on the connection with the least."""
        return min([sender.in_flight for sender in self._senders if sender.in_flight], default=0)

    def _take_answers(self, index: int) -> None:
        """How long the whole way took, and the way there: from the intended time, or from the send time without one."""
        sender = self._senders[index]
        if sender.replies is None:
            return
        for answers in sender.replies.take():
            begun_ns = answers.intended_ns if sender.pacer.bounded else answers.sent_ns
            source, count, numbers = f"sender/{sender.number}", len(answers.seq), answers.seq.astype(np.float64)
            for action, end_ns in ((ROUND_TRIP, answers.received_ns), (ONE_WAY, answers.echoed_ns)):
                self._log.append(SPANS, count, end_ns, source, action, end_ns - begun_ns, numbers, "ok", "")
        self._runnable.add(index)

    def _settle(self, sender: Sender, outcomes: list[SettledMessages], settled_ns: int) -> None:
        for outcome in outcomes:
            settlement = int(outcome.settlement)
            match sender.settled(outcome.seqs):
                case SettledRange(first, last, sent_ns):
                    self._gathering.add(last - first + 1, settled_ns - sent_ns)
                    self._log.append_one(SETTLED, sender.number, first, last, sent_ns, settled_ns, settlement)
                case SettledRanges(messages, firsts, lasts, sent):
                    self._gathering.add(messages, settled_ns - int(sent[-1]))
                    self._log.append(SETTLED, len(sent), sender.number, firsts, lasts, sent, settled_ns, settlement)

    # -- once in a while -----------------------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        while (left_ns := self._t0_ns - time.monotonic_ns()) > 0:
            self._poll(min(left_ns, _IDLE_WAIT_NS))

    def _wait_ns(self, now_ns: int) -> int:
        """How long nothing needs doing: until the next due time, but not so short that waiting eats the CPU.

        Counted from when the last messages began to leave: their sending is no reason to be later with the next ones.
        """
        if self._runnable:
            return 0
        wait_ns = self._waiting[0][0] - now_ns if self._waiting else _IDLE_WAIT_NS
        spent_ns = time.monotonic_ns() - now_ns
        return max(min(max(wait_ns, QUANTUM_NS), _IDLE_WAIT_NS) - spent_ns, 0)

    def _watch(self, sender: Sender, *, writable: bool) -> None:
        if sender.channel.closed is None:
            mask = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
            self._epoll.modify(sender.channel.fileno(), mask)

    def _housekeep(self, now_ns: int) -> None:
        for index, sender in enumerate(self._senders):
            sender.channel.keep_alive(now_ns)
            if sender.blocked.running:
                self._runnable.add(index)  # time alone may have ended its turn
            if sender.replies is not None:
                sender.replies.channel.keep_alive(now_ns)
                sender.replies.channel.flush()
            self._tend(index, sender, now_ns)

    def _tend(self, index: int, sender: Sender, now_ns: int) -> None:
        """See to a connection that was lost."""
        match sender.line.step(now_ns, self._diallers):
            case ConnectionChange.LOST:
                self._ahead[index].discard()
                self._control.event("disconnect", {"sender": sender.number, "reason": sender.line.reason})
                # It will not send again, so nobody waits for the time at which it would have.
                self._waiting = [entry for entry in self._waiting if entry[1] != index]
                heapq.heapify(self._waiting)
                self._scheduled.discard(index)
                self._runnable.add(index)
            case ConnectionChange.INTERRUPTED:
                self._ahead[index].discard()
                unsettled = sender.interrupted()
                detail = {"sender": sender.number, "reason": sender.line.reason, "unsettled": unsettled}
                self._control.event("disconnect", detail)
                self._runnable.add(index)
            case ConnectionChange.DIALLED:
                self._adopt(index)
            case ConnectionChange.RESTORED:
                self._control.event("reconnect", {"sender": sender.number})
                self._runnable.add(index)

    def _adopt(self, index: int) -> None:
        """Watch over a connection that is new."""
        sender = self._senders[index]
        self._by_file[sender.channel.fileno()] = index
        self._epoll.register(sender.channel.fileno(), select.EPOLLIN)
        sender.channel.flush()  # a new one has its greeting still to say

    def statistics(self, now_ns: int) -> Statistics:
        for ahead in self._ahead:
            ahead.commit()
        counts: dict[str, int] = {}
        for sender in self._senders:
            counts[sender.group.shared_address] = counts.get(sender.group.shared_address, 0) + sender.sent
        messages = sum(counts.values())
        rate, cores = self._pulse.sample(now_ns, messages)
        p99_ns = self._lateness.fold(99.0)
        elapsed_ns = max(now_ns - self._t0_ns, 1) * max(len(self._senders), 1)
        blocked_ns = sum(sender.blocked.elapsed_ns(now_ns) for sender in self._senders)
        in_time = {index for due_ns, index in self._waiting if due_ns > now_ns}
        unsent = sum(
            max(sender.due(now_ns - self._t0_ns), 0)
            for index, sender in enumerate(self._senders)
            if sender.pacer.bounded and (index not in in_time or sender.blocked.running)
        )
        values = {
            "blocked_share": blocked_ns / elapsed_ns,
            "lateness_p50_ns": self._lateness.overall(50.0),
            "lateness_p99_ns": self._lateness.overall(99.0),
            "last_sent_ns": max((sender.last_sent_ns for sender in self._senders), default=0) or None,
            "unsent": unsent,
            "unsettled": sum(sender.in_flight for sender in self._senders),
            "shed": sum(sender.shed for sender in self._senders) or None,
            "batch_share": sum(sender.batched for sender in self._senders) / messages if messages else None,
            "cpu_seconds": time.process_time(),
        }
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, known(values))
