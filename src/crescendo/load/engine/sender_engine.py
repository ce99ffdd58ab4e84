"""How does one process send every message when it is due, whatever happened to the earlier ones?

One loop drives all sending connections of a process. It asks each pacer what is due, stamps the batch with the
intended times and the send time, sends, and waits until the next message is due or something arrives. When a
connection is blocked (no credit, full socket) its messages stay due and keep their intended times, so a stall shows
in every one of them; the same when it is lost and reconnected. Decides nothing about the run: `Control` says when to
stop.
"""

import heapq
import select
import time
from typing import Protocol

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.engine.graceful_close import CLOSE_TIMEOUT_S, close_gracefully
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, SeqRange, SettledRange, SettledRanges
from crescendo.load.engine.prepared import PreparedMessages
from crescendo.load.engine.read_coalescing import ReadCoalescer
from crescendo.load.engine.reconnect import ConnectionChange, DialPool
from crescendo.load.engine.sender import MAX_CREDIT_WAIT_NS, SMALL_BATCH, Sender
from crescendo.load.engine.statistics import Distribution, RateMeter
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.model.arrays import Int64s
from crescendo.model.peer_statistics import sender_statistics
from crescendo.model.workload import STAMP_BYTES
from crescendo.record.schema import SENT, SETTLED, SPANS, Settlement
from crescendo.record.writer import RowSink
from crescendo.wire.stamp import STAMP_NUMBERS, STAMP_NUMBERS_AT

QUANTUM_NS = 250_000
"""The shortest wait between two rounds of sending: a shorter one costs more CPU than the lateness is worth."""

ROUND_TRIP, ONE_WAY = "round trip", "one way"
_IDLE_WAIT_NS = 50_000_000
_HOUSEKEEPING_NS = 100_000_000
_REPORT_NS = 1_000_000_000


class Control(Protocol):
    """What an engine reports to, and what asks it to stop."""

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
        self._by_fileno: dict[int, int] = {}
        self._dial_pool = DialPool()
        self._coalescer = ReadCoalescer(unpaced=all(sender.group.unpaced for sender in senders))
        self._t0_ns = 0
        self._rate_meter = RateMeter(time.monotonic_ns())
        self._due_heap: list[tuple[int, int]] = []  # when the next message is due, and the index of its connection
        self._scheduled: set[int] = set()  # connections in that heap
        self._runnable: set[int] = set()  # connections that may be able to send right now
        self._prepared: list[PreparedMessages] = []  # one per connection, once running
        self._by_reply_fileno: dict[int, int] = {}
        for index, sender in enumerate(senders):
            self._attach_channel(index)
            if sender.replies is not None:
                self._by_reply_fileno[sender.replies.channel.fileno()] = index
                self._epoll.register(sender.replies.channel.fileno(), select.EPOLLIN)

    def run(self, t0_ns: int) -> Statistics:
        """Send everything that is due from t0 on, wait for settlements, and return the final statistics."""
        self._t0_ns = t0_ns
        self._prepared = [PreparedMessages(sender, t0_ns, QUANTUM_NS, self._record) for sender in self._senders]
        self._due_heap = [(t0_ns, index) for index in range(len(self._senders))]
        self._scheduled = set(range(len(self._senders)))
        for sender in self._senders:
            if sender.replies is not None:
                sender.replies.channel.begin()
        for prepared in self._prepared:
            prepared.renew(t0_ns)
        self._wait_for_start()
        now_ns = time.monotonic_ns()
        self._rate_meter = RateMeter(now_ns)
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
            if not self._due_heap and not self._runnable and all(sender.exhausted for sender in self._senders):
                finished_sending_ns = finished_sending_ns or now_ns
                if all(sender.drained() for sender in self._senders) or now_ns - finished_sending_ns > self._drain_ns:
                    break
        for prepared in self._prepared:
            prepared.discard()
        return self.statistics(time.monotonic_ns())

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        self._dial_pool.close()
        close_gracefully((channel for sender in self._senders for channel in sender.channels), timeout_s)
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        """Why no connection can send any more, or None while one can."""
        return None if any(not sender.connection.lost for sender in self._senders) else self._senders[0].channel.closed

    # -- the hot path --------------------------------------------------------------------------------------------

    def _send_due(self, now_ns: int) -> None:
        """Send what is due on the connections whose time has come or that may be unblocked."""
        runnable, self._runnable = self._runnable, set()
        due_heap = self._due_heap
        used_up = []
        while due_heap and due_heap[0][0] <= now_ns:
            index = due_heap[0][1]
            prepared = self._prepared[index]
            next_ns = prepared.send(now_ns)
            if next_ns:
                heapq.heapreplace(due_heap, (next_ns, index))
                if prepared.used_up:
                    used_up.append(prepared)
            else:
                heapq.heappop(due_heap)
                self._scheduled.discard(index)
                runnable.add(index)
        for index in runnable:
            self._offer(index, now_ns)
        for prepared in used_up:  # only after everything due was sent
            prepared.renew(now_ns)

    def _offer(self, index: int, now_ns: int) -> None:
        sender, prepared = self._senders[index], self._prepared[index]
        prepared.commit()
        if sender.group.buffer is not None:
            self._shed(sender, now_ns)
        due = sender.due(now_ns - self._t0_ns)
        if due <= 0:
            if not sender.exhausted:
                self._schedule(index)
            else:
                sender.blocked.stop(now_ns)
        elif (granted := sender.grant(due)) <= 0:
            prepared.discard()  # records what was sent now: the block may last long
            self._mark_blocked(sender, now_ns)
        elif granted < due and sender.should_wait_for_credit(granted, now_ns):
            prepared.discard()
            sender.return_grant(granted)
            self._mark_blocked(sender, now_ns)
            self._wake_at(index, sender.last_sent_ns + MAX_CREDIT_WAIT_NS)
        else:
            prepared.discard()
            if sender.blocked.stop(now_ns):
                sender.free_since_ns = now_ns
            sent = self._send(sender, granted)
            if granted < min(due, sender.channel.capacity):
                self._mark_blocked(sender, now_ns)  # now rather than after the next poll
            elif due > sent or not sender.pacer.bounded:
                self._runnable.add(index)
            elif sender.next_seq < sender.total:
                self._schedule(index)

    def _mark_blocked(self, sender: Sender, now_ns: int) -> None:
        """Nothing may be sent, and its messages stay due. An event on its socket makes it runnable again."""
        if sender.connection.lost:
            sender.blocked.stop(now_ns)
            return
        sender.blocked.start(now_ns)
        if not sender.channel.flush():
            self._watch(sender, writable=True)

    def _schedule(self, index: int) -> None:
        """Wake this connection when its next message is due."""
        if index not in self._scheduled:
            sender = self._senders[index]
            self._wake_at(index, self._t0_ns + sender.due_ns(sender.next_seq))

    def _wake_at(self, index: int, due_ns: int) -> None:
        if index not in self._scheduled:
            self._scheduled.add(index)
            heapq.heappush(self._due_heap, (due_ns, index))

    def _send(self, sender: Sender, count: int) -> int:
        """Send at most `count` of the messages that are due. Returns how many were sent."""
        seq_range = sender.next_range(count)
        if sender.sizes is None:
            self._send_same_size(sender, seq_range, sender.fixed_size)
            return seq_range.length
        sizes = sender.sizes(seq_range.first_seq, seq_range.length)
        sent = 0
        while sent < seq_range.length:
            changes = np.flatnonzero(sizes[sent:] != sizes[sent])
            same = int(changes[0]) if len(changes) else seq_range.length - sent
            sender.channel.resize(int(sizes[sent]))
            room = sender.channel.room()  # a batch must not be changed before its bytes are written
            if room <= 0:
                sender.put_back(
                    seq_range._replace(first_seq=seq_range.first_seq + sent, length=seq_range.length - sent)
                )
                break
            chunk = seq_range._replace(first_seq=seq_range.first_seq + sent, length=min(same, room))
            self._write_lines(sender, chunk)
            self._send_same_size(sender, chunk, int(sizes[sent]))
            sent += chunk.length
        return sent

    def _write_lines(self, sender: Sender, seq_range: SeqRange) -> None:
        """Write lines of a file behind the stamps, if the group sends a file."""
        for row in range(seq_range.length if sender.lines else 0):
            line = sender.lines[(seq_range.first_seq + row) % len(sender.lines)]
            sender.channel.bodies[row, STAMP_BYTES:] = np.frombuffer(line, np.uint8)

    def _send_same_size(self, sender: Sender, seq_range: SeqRange, size: int) -> None:
        sender.stamp_constants(seq_range.length if sender.sizes else sender.channel.capacity)
        if seq_range.length <= SMALL_BATCH:
            self._send_few(sender, seq_range, size)
        else:
            self._send_many(sender, seq_range, size)
        sender.send(seq_range.first_seq, seq_range.length)

    def _send_few(self, sender: Sender, seq_range: SeqRange, size: int) -> None:
        """The same as `_send_many`, one by one."""
        bounded, seq = sender.pacer.bounded, seq_range.first_seq
        sent_ns = time.monotonic_ns()
        for body in sender.first_bodies[: seq_range.length]:
            intended_ns = sender.due_ns(seq) + self._t0_ns if bounded else seq_range.first_sent_ns or sent_ns
            if bounded and seq_range.attempt == FIRST_ATTEMPT:
                self._lateness.add_one(sent_ns - max(intended_ns, sender.free_since_ns))
            STAMP_NUMBERS.pack_into(body, STAMP_NUMBERS_AT, seq, intended_ns, sent_ns)
            self._log.append_one(SENT, sender.number, seq, seq_range.attempt, intended_ns, sent_ns, size)
            seq += 1
        sender.mark_sent(seq_range, sent_ns)

    def _send_many(self, sender: Sender, seq_range: SeqRange, size: int) -> None:
        first, count = seq_range.first_seq, seq_range.length
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
            intended_ns = seq_range.first_sent_ns or sent_ns
            if seq_range.first_sent_ns:
                times_ns[:count, 0] = intended_ns
        self._record(sender, seq_range, intended_ns, sent_ns, size)
        sender.mark_sent(seq_range, sent_ns)

    def _record(
        self, sender: Sender, seq_range: SeqRange, intended_ns: int | Int64s, sent_ns: int | Int64s, size: int
    ) -> None:
        """Record messages that are sent together, or were sent one by one."""
        if sender.pacer.bounded and seq_range.attempt == FIRST_ATTEMPT:
            # Own lateness: time for which the system blocked us is not the generator's fault.
            self._lateness.add(sent_ns - np.maximum(intended_ns, sender.free_since_ns))
        first, count = seq_range.first_seq, seq_range.length
        self._log.append(
            SENT, count, sender.number, range(first, first + count), seq_range.attempt, intended_ns, sent_ns, size
        )  # fmt: skip

    def _shed(self, sender: Sender, now_ns: int) -> None:
        shed = sender.shed_overflow(now_ns - self._t0_ns, max(sender.room(), 0))
        if shed:
            self._log.append_one(
                SETTLED, sender.number, shed.start, shed.stop - 1, now_ns, now_ns, int(Settlement.SHED)
            )  # fmt: skip

    def _poll(self, wait_ns: int) -> None:
        if wait_ns > 0 and self._coalescer.unpaced:  # for paced load, `_window` would only cost time
            pause_s = self._coalescer.pause_s(time.monotonic_ns(), self._window)
            if pause_s:
                time.sleep(pause_s)
        # An epoll waits in whole milliseconds, select in microseconds; where that matters, select waits for the epoll.
        if not self._coalescer.unpaced and wait_ns > 0:
            if not select.select((self._epoll,), (), (), wait_ns / 1e9)[0]:
                return
            wait_ns = 0
        for number, mask in self._epoll.poll(wait_ns / 1e9):
            if number in self._by_reply_fileno:
                self._take_replies(self._by_reply_fileno[number])
                continue
            index = self._by_fileno[number]
            sender = self._senders[index]
            if mask & select.EPOLLOUT and sender.channel.flush():
                self._watch(sender, writable=False)
            if mask & ~select.EPOLLOUT:
                self._prepared[index].commit(revoke=True)
                outcomes = sender.pump()
                if outcomes:
                    self._settle(sender, outcomes, sender.channel.read_ns)
            if sender.blocked.running:
                self._runnable.add(index)

    @property
    def _window(self) -> int:
        """The number of messages in flight on the connection with the fewest."""
        return min([sender.in_flight for sender in self._senders if sender.in_flight], default=0)

    def _take_replies(self, index: int) -> None:
        """Record round trips and one-way times: from the intended time, or from the send time if there is none."""
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
            match sender.settle(outcome.seqs):
                case SettledRange(first, last, sent_ns):
                    self._coalescer.add(last - first + 1, settled_ns - sent_ns)
                    self._log.append_one(SETTLED, sender.number, first, last, sent_ns, settled_ns, settlement)
                case SettledRanges(messages, firsts, lasts, sent):
                    self._coalescer.add(messages, settled_ns - int(sent[-1]))
                    self._log.append(SETTLED, len(sent), sender.number, firsts, lasts, sent, settled_ns, settlement)

    # -- housekeeping --------------------------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        while (left_ns := self._t0_ns - time.monotonic_ns()) > 0:
            self._poll(min(left_ns, _IDLE_WAIT_NS))

    def _wait_ns(self, now_ns: int) -> int:
        """How long to wait: until the next due time, but at least a quantum, because short waits cost CPU.

        Counted from the start of this round of sending, so that the round itself does not delay the next one.
        """
        if self._runnable:
            return 0
        wait_ns = self._due_heap[0][0] - now_ns if self._due_heap else _IDLE_WAIT_NS
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
                self._runnable.add(index)  # its quota may have ended by time alone
            if sender.replies is not None:
                sender.replies.channel.keep_alive(now_ns)
                sender.replies.channel.flush()
            self._maintain(index, sender, now_ns)

    def _maintain(self, index: int, sender: Sender, now_ns: int) -> None:
        """Handle a lost connection, or the progress of its replacement."""
        match sender.connection.step(now_ns, self._dial_pool):
            case ConnectionChange.LOST:
                self._prepared[index].discard()
                self._control.event("disconnect", {"sender": sender.number, "reason": sender.connection.reason})
                # It will not send again, so its next due time must not wake the engine.
                self._due_heap = [entry for entry in self._due_heap if entry[1] != index]
                heapq.heapify(self._due_heap)
                self._scheduled.discard(index)
                self._runnable.add(index)
            case ConnectionChange.INTERRUPTED:
                self._prepared[index].discard()
                unsettled = sender.requeue_unsettled()
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
        sender = self._senders[index]
        self._by_fileno[sender.channel.fileno()] = index
        self._epoll.register(sender.channel.fileno(), select.EPOLLIN)
        sender.channel.flush()  # its handshake is still to be written

    def statistics(self, now_ns: int) -> Statistics:
        for prepared in self._prepared:
            prepared.commit()
        counts: dict[str, int] = {}
        for sender in self._senders:
            counts[sender.group.shared_address] = counts.get(sender.group.shared_address, 0) + sender.sent
        messages = sum(counts.values())
        rate, cores = self._rate_meter.sample(now_ns, messages)
        p99_ns = self._lateness.fold(99.0)
        elapsed_ns = max(now_ns - self._t0_ns, 1) * max(len(self._senders), 1)
        blocked_ns = sum(sender.blocked.elapsed_ns(now_ns) for sender in self._senders)
        in_time = {index for due_ns, index in self._due_heap if due_ns > now_ns}
        unsent = sum(
            max(sender.due(now_ns - self._t0_ns), 0)
            for index, sender in enumerate(self._senders)
            if sender.pacer.bounded and (index not in in_time or sender.blocked.running)
        )
        measured = sender_statistics(
            blocked_share=blocked_ns / elapsed_ns,
            lateness_p50_ns=self._lateness.overall(50.0),
            lateness_p99_ns=self._lateness.overall(99.0),
            last_sent_ns=max((sender.last_sent_ns for sender in self._senders), default=0) or None,
            unsent=unsent,
            unsettled=sum(sender.in_flight for sender in self._senders),
            shed=sum(sender.shed for sender in self._senders) or None,
            batch_share=sum(sender.batched for sender in self._senders) / messages if messages else None,
            cpu_seconds=time.process_time(),
        )
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, measured)
