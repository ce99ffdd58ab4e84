"""How are messages sent on schedule by a vendor's JMS client?

The schedule is ours, the clock is one: due times are handed to the JVM a little ahead, its threads wait for them and
report when each message was sent, when the client's `send` returned, and how it was settled. Time inside `send`, and
time spent waiting for the window, is the client's and the system's; the rest of a delay is our own. Decides nothing
about the run: `Control` says when to stop.
"""

import select
import time
from typing import TYPE_CHECKING

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.engine.echo import EchoedStamps, record_round_trips
from crescendo.load.engine.engine_control import Control
from crescendo.load.engine.held_time import HeldTime
from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.received_rows import as_range
from crescendo.load.engine.sent_log import SentLog
from crescendo.load.engine.statistics import Distribution, RateMeter
from crescendo.load.jms.child_records import (
    ECHOED,
    ENDED,
    MAX_DUE_ROWS,
    SENT,
    SETTLED,
    Closing,
    Records,
    due_command,
    end_command,
    start_command,
)
from crescendo.load.jms.connection_settings import MAX_WAITING
from crescendo.model.arrays import Int64s
from crescendo.model.errors import PeerError
from crescendo.model.pacer import Pacer
from crescendo.model.peer_statistics import sender_statistics
from crescendo.model.workload import Group, Settle
from crescendo.record import schema
from crescendo.record.writer import RowSink

if TYPE_CHECKING:
    from crescendo.load.jms.jvm_child import JvmChild

_AHEAD_NS = 1_000_000_000  # due times are handed over this long before
_AHEAD_UNPACED = 1 << 13  # messages without due times
_MAX_HOLDS = 1 << 18
_WAIT_S = 0.01
_HOUSEKEEPING_NS = 100_000_000
_REPORT_NS = 1_000_000_000


class JmsSender:
    """One sending connection of the JVM."""

    def __init__(self, number: int, group: Group, pacer: Pacer, quota: Quota, *, seed: int = 1) -> None:
        self.number = number
        self.group = group
        self.held = HeldTime(_MAX_HOLDS)
        self.sent = self.settled = self.answered = 0
        self.last_sent_ns = 0
        self.ended = False  # it sends no more
        self.closed: str | None = None
        self._pacer = pacer
        self._quota = quota
        self._total = quota.total
        self._handed_over = 0
        self._returned_ns = 0
        self._end_asked = False
        self._awaits_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self._sizes = None if group.size.is_fixed else group.size.sizes(seed, number)
        self._log: RowSink
        self._sent_log: SentLog

    def start(self, start_ns: int, log: RowSink, own_delay: Distribution) -> None:
        self._start_ns = self._returned_ns = start_ns
        self._log = log
        self._sent_log = SentLog(self.number, log, self.held, own_delay)

    # -- what to send --------------------------------------------------------------------------------------------

    def next_commands(self, index: int, now_ns: int) -> list[bytes]:
        """Due times to hand over now, or the end of sending."""
        if self.closed is not None or self.ended:
            return []
        elapsed_ns = now_ns - self._start_ns
        if not self._pacer.bounded:
            self._end_by_time(elapsed_ns)
        commands = []
        if self._total < self._handed_over and not self._end_asked:
            self._end_asked = True
            commands.append(end_command(index))
        while (count := min(self._ready(elapsed_ns), MAX_DUE_ROWS)) > 0:
            first = self._handed_over
            due_ns: Int64s | int = 0
            if self._pacer.bounded:
                due_ns = self._pacer.due_ns(np.arange(first, first + count, dtype=np.int64)) + self._start_ns
            sizes = int(self.group.size) if self._sizes is None else self._sizes(first, count)
            commands.append(due_command(index, first, due_ns, sizes, count))
            self._handed_over += count
        return commands

    def _ready(self, elapsed_ns: int) -> int:
        """How many messages may be handed over."""
        waiting = self._handed_over - self.sent
        if not self._pacer.bounded:
            return min(_AHEAD_UNPACED - waiting, self._total - self._handed_over)
        due = min(self._pacer.due_count(elapsed_ns + _AHEAD_NS), self._total)
        return min(due - self._handed_over, MAX_WAITING - waiting)

    def _end_by_time(self, elapsed_ns: int) -> None:
        """Without due times, the number of messages depends on the time."""
        quota = self._quota
        if quota.count_after_warmup is not None and elapsed_ns >= quota.warmup_ns:
            self._total = max(self.sent + quota.count_after_warmup, self._handed_over)
            self._quota = Quota(self._total, quota.until_ns)
        if elapsed_ns >= quota.until_ns and not self._end_asked:
            self._total = self.sent

    # -- what happened -------------------------------------------------------------------------------------------

    def take_sent(self, words: Int64s, sizes: Int64s) -> None:
        """Messages were sent, in this order."""
        seqs, intended_ns, sent_ns, returned_ns, held_from_ns, held_until_ns = words.T
        free_ns = np.maximum(np.append(self._returned_ns, returned_ns[:-1]), held_until_ns)
        held = held_until_ns > held_from_ns
        begun_ns = np.concatenate((held_from_ns[held], sent_ns))
        order = np.argsort(begun_ns, kind="stable")
        until_ns = np.concatenate((np.minimum(held_until_ns, sent_ns)[held], returned_ns))
        self.held.add_many(begun_ns[order], until_ns[order])
        size: int | Int64s = int(sizes[0]) if (sizes == sizes[0]).all() else sizes
        count, first = len(seqs), int(seqs[0])
        if self._pacer.bounded:
            self._sent_log.add(SeqRange(first, count), intended_ns, sent_ns, size)
        else:
            self._log.append(schema.SENT, count, self.number, as_range(seqs), 1, intended_ns, sent_ns, size)
            own_ns = np.maximum(sent_ns - np.maximum(free_ns, self._start_ns), 0)
            self._log.append(schema.OWN_DELAY, count, self.number, seqs, seqs, own_ns)
        self.sent += count
        self._returned_ns = int(returned_ns[-1])
        self.last_sent_ns = int(sent_ns[-1])

    def take_settled(self, words: Int64s, outcomes: Int64s) -> None:
        seqs, sent_ns, settled_ns = words.T[:3]
        self._log.append(schema.SETTLED, len(seqs), self.number, seqs, seqs, sent_ns, settled_ns, outcomes)
        self.settled += len(seqs)

    def take_echoed(self, words: Int64s) -> None:
        seqs, intended_ns, sent_ns, echoed_ns, received_ns = words.T[:5]
        answers = EchoedStamps(received_ns, seqs, intended_ns, sent_ns, echoed_ns)
        record_round_trips(self._log, self.number, [answers], scheduled=self._pacer.bounded)
        self.answered += len(seqs)

    @property
    def unsettled(self) -> int:
        return self.sent - self.settled if self._awaits_outcomes else 0

    def unsent(self, now_ns: int) -> int:
        """Messages that are due and were not sent."""
        if not self._pacer.bounded:
            return 0
        return max(min(self._pacer.due_count(now_ns - self._start_ns), self._total) - self.sent, 0)

    @property
    def exhausted(self) -> bool:
        return self.closed is not None or self.ended or self.sent >= self._total

    def drained(self) -> bool:
        """Whether everything was settled where outcomes are awaited, and echoed where echoes are."""
        if self.closed is not None:
            return True
        return not self.unsettled and (not self.group.is_answered or self.answered >= self.sent)


class JmsSenderEngine:
    """Drives the senders of one process, which share a JVM."""

    def __init__(self, senders: list[JmsSender], child: "JvmChild", log: RowSink, control: Control, *, drain_ns: int):
        self._senders = senders
        self._child = child
        self._log = log
        self._control = control
        self._drain_ns = drain_ns
        self._own_delay = Distribution()
        self._start_ns = 0
        self._rate_meter = RateMeter(time.monotonic_ns(), self._cpu_seconds)

    def run(self, t0_ns: int) -> Statistics:
        """Send everything that is due from t0 on, wait for settlements, and return the final statistics."""
        self._start_ns = t0_ns
        for sender in self._senders:
            sender.start(t0_ns, self._log, self._own_delay)
        self._child.write(start_command(t0_ns))
        now_ns = next_housekeeping_ns = time.monotonic_ns()
        next_report_ns = now_ns + _REPORT_NS
        finished_ns: int | None = None
        while True:
            now_ns = time.monotonic_ns()
            self._hand_over(now_ns)
            self._wait()
            self._take()
            if now_ns >= next_housekeeping_ns:
                next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
                if self._control.should_stop():
                    break
            if now_ns >= next_report_ns:
                next_report_ns += _REPORT_NS
                self._control.report(self.statistics(now_ns))
                self._log.tick(now_ns)
            if all(sender.exhausted for sender in self._senders):
                finished_ns = finished_ns or now_ns
                if all(sender.drained() for sender in self._senders) or now_ns - finished_ns > self._drain_ns:
                    break
        return self.statistics(time.monotonic_ns())

    def close(self) -> None:
        self._child.close()

    @property
    def failure(self) -> str | None:
        """Why no connection can send any more, or None while one can."""
        return None if any(sender.closed is None for sender in self._senders) else self._senders[0].closed

    def _hand_over(self, now_ns: int) -> None:
        for index, sender in enumerate(self._senders):
            for command in sender.next_commands(index, now_ns):
                self._child.write(command)

    def _wait(self) -> None:
        writing = [self._child.stdin_fileno] if self._child.writing else []
        reading = [self._child.fileno()] if self._child.ended is None else []
        select.select(reading, writing, [], _WAIT_S)

    def _take(self) -> None:
        try:
            for found in self._child.read():
                if isinstance(found, Closing):
                    self._lose(self._senders[found.connection], found.reason)
                else:
                    self._take_records(found)
        except PeerError as err:
            self._child.ended = str(err)
        if self._child.ended is not None:
            for sender in self._senders:
                self._lose(sender, self._child.ended)

    def _take_records(self, records: Records) -> None:
        for index, sender in enumerate(self._senders):
            own = records[records["index"] == index] if len(self._senders) > 1 else records
            for kind in np.unique(own["type"]).tolist():
                rows = own[own["type"] == kind]
                words = rows["words"].astype(np.int64)
                if kind == SENT:
                    sender.take_sent(words, rows["size"].astype(np.int64))
                elif kind == SETTLED:
                    sender.take_settled(words, rows["flag"].astype(np.int64))
                elif kind == ECHOED:
                    sender.take_echoed(words)
                elif kind == ENDED:
                    sender.ended = True

    def _lose(self, sender: JmsSender, reason: str) -> None:
        if sender.closed is None:
            sender.closed = reason
            self._control.event("disconnect", {"sender": sender.number, "reason": reason})

    def _cpu_seconds(self) -> float:
        return time.process_time() + self._child.cpu_seconds

    def statistics(self, now_ns: int) -> Statistics:
        senders, counts = self._senders, dict.fromkeys((one.group.shared_address for one in self._senders), 0)
        for sender in senders:
            counts[sender.group.shared_address] += sender.sent
        messages = sum(counts.values())
        rate, cores = self._rate_meter.sample(now_ns, messages)
        p99_ns = self._own_delay.fold(99.0)
        elapsed_ns = max(now_ns - self._start_ns, 1) * max(len(senders), 1)
        unsent = sum(sender.unsent(now_ns) for sender in senders)
        measured = sender_statistics(
            blocked_share=sum(sender.held.total_ns for sender in senders) / elapsed_ns,
            lateness_p50_ns=self._own_delay.overall(50.0),
            lateness_p99_ns=self._own_delay.overall(99.0),
            own_delay_p99_ns=self._own_delay.overall(99.0),
            own_delay_max_ns=self._own_delay.overall(100.0),
            last_sent_ns=max((sender.last_sent_ns for sender in senders), default=0) or None,
            unsent=unsent,
            unsent_own=0,  # a thread that is free sends at once; what is due and unsent waits for the client
            unsettled=sum(sender.unsettled for sender in senders),
            shed=None,
            batch_share=None,
            cpu_seconds=self._cpu_seconds(),
            stalled_ns=0,
        )
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, measured)
