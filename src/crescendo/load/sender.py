"""How do messages leave when they are due, whatever became of the earlier ones?

One loop drives all sending connections of a process. It asks each pacer what is due, stamps the batch with the
intended times and the send time, sends, and waits until the next message is due or something arrives. When a
connection is held back (no credit, full socket) its messages stay due and keep their intended times, so a stall shows
in every one of them. Decides nothing about the run: `Control` tells it to stop.
"""

import heapq
import select
import time
from collections import deque
from typing import NamedTuple, Protocol

import numpy as np

from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.driver import Outcome, SendChannel
from crescendo.load.statistics import Distribution, Pulse, Stopwatch, known
from crescendo.model.pacer import Pacer
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import SENT, SETTLED
from crescendo.record.writer import Log
from crescendo.wire.stamp import MAGIC

QUANTUM_NS = 300_000
"""Shorter waits than this cost more CPU than the lateness they save."""

_IDLE_WAIT_NS = 50_000_000
_HOUSEKEEPING_NS = 100_000_000
_REPORT_NS = 1_000_000_000


class Control(Protocol):
    """Who watches over an engine."""

    def should_stop(self) -> bool: ...

    def report(self, statistics: Statistics) -> None: ...

    def event(self, kind: str, detail: dict[str, object]) -> None: ...


class Flight(NamedTuple):
    """A batch on its way to being settled."""

    first_seq: int
    last_seq: int
    sent_ns: int


class Sender:
    """One sending connection and where it is in its schedule."""

    def __init__(self, number: int, group: Group, pacer: Pacer, quota: Quota, channel: SendChannel, tag: int) -> None:
        self.number = number
        self.group = group
        self.channel = channel
        self.pacer = pacer
        self.quota = quota
        self.total = quota.total
        self.next_seq = 0
        self.blocked = Stopwatch()
        self.free_since_ns = 0
        self.last_sent_ns = 0
        self.awaits_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self.flights: deque[Flight] = deque()
        self.in_flight = 0
        channel.stamps["magic"] = MAGIC
        channel.stamps["sender"] = number
        channel.stamps["tag"] = tag

    def due(self, elapsed_ns: int) -> int:
        """How many messages wait to be sent."""
        if self.quota.count_after_warmup is not None and elapsed_ns >= self.quota.warmup_ns:
            self.total = self.next_seq + self.quota.count_after_warmup
            self.quota = Quota(self.total, self.quota.until_ns)
        if not self.pacer.bounded and elapsed_ns >= self.quota.until_ns:
            self.total = self.next_seq
        return min(self.pacer.due_count(elapsed_ns), self.total) - self.next_seq

    @property
    def next_due_ns(self) -> int:
        """The intended offset of the next message."""
        return int(self.pacer.due_ns(np.array([self.next_seq], np.int64))[0])

    @property
    def exhausted(self) -> bool:
        return self.next_seq >= self.total or self.channel.closed is not None

    def room(self) -> int:
        """How many messages may leave now, by the system's leave and by our own window."""
        room = self.channel.room()
        window = self.group.window
        return room if window is None else min(room, window - self.in_flight)

    def over(self) -> bool:
        """Whether everything has left and has been settled, where anybody settles."""
        return self.channel.closed is not None or (not self.flights and self.channel.flush())


class SenderEngine:
    """Drives the senders of one process."""

    def __init__(self, senders: list[Sender], log: Log, control: Control, *, drain_ns: int) -> None:
        self._senders = senders
        self._log = log
        self._control = control
        self._drain_ns = drain_ns
        self._lateness = Distribution()
        self._epoll = select.epoll()
        self._by_file: dict[int, int] = {}
        self._reported_closed: set[int] = set()
        self._t0_ns = 0
        self._pulse = Pulse(time.monotonic_ns())
        self._waiting: list[tuple[int, int]] = []  # a heap: when the next message is due, and on which connection
        self._runnable: set[int] = set()  # connections that may have something to send right now
        for index, sender in enumerate(senders):
            self._by_file[sender.channel.fileno()] = index
            self._epoll.register(sender.channel.fileno(), select.EPOLLIN)

    def run(self, t0_ns: int) -> Statistics:
        """Send everything that is due from t0 on, wait for what is unsettled, and say how it went."""
        self._t0_ns = t0_ns
        self._waiting = [(t0_ns, index) for index in range(len(self._senders))]
        self._wait_for_start()
        now_ns = time.monotonic_ns()
        self._pulse = Pulse(now_ns)
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
        return self.statistics(time.monotonic_ns())

    def close(self) -> None:
        for sender in self._senders:
            sender.channel.close()
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        """Why nobody can send any more, or None while somebody can."""
        reasons = [sender.channel.closed for sender in self._senders]
        return None if any(reason is None for reason in reasons) else reasons[0]

    # -- the hot path --------------------------------------------------------------------------------------------

    def _send_due(self, now_ns: int) -> None:
        """Offer their due messages to the connections whose time has come or whose way is free again."""
        runnable, self._runnable = self._runnable, set()
        while self._waiting and self._waiting[0][0] <= now_ns:
            runnable.add(heapq.heappop(self._waiting)[1])
        for index in runnable:
            self._offer(index, now_ns)

    def _offer(self, index: int, now_ns: int) -> None:
        sender = self._senders[index]
        due = sender.due(now_ns - self._t0_ns)
        if sender.exhausted:
            sender.blocked.stop(now_ns)
        elif due <= 0:
            heapq.heappush(self._waiting, (self._t0_ns + sender.next_due_ns, index))
        elif (room := sender.room()) <= 0:
            # Held back: its messages stay due. An event on its socket makes it runnable again.
            sender.blocked.start(now_ns)
            if not sender.channel.flush():
                self._watch(sender, writable=True)
        else:
            if sender.blocked.stop(now_ns):
                sender.free_since_ns = now_ns
            self._send(sender, min(due, room))
            if due > room or not sender.pacer.bounded:
                self._runnable.add(index)
            elif not sender.exhausted:
                heapq.heappush(self._waiting, (self._t0_ns + sender.next_due_ns, index))

    def _send(self, sender: Sender, count: int) -> None:
        first = sender.next_seq
        numbers = np.arange(first, first + count, dtype=np.int64)
        stamps = sender.channel.stamps
        stamps["seq"][:count] = numbers
        if sender.pacer.bounded:
            intended_ns = sender.pacer.due_ns(numbers) + self._t0_ns
            stamps["intended_ns"][:count] = intended_ns
            sent_ns = time.monotonic_ns()
            # Own lateness: time that the other side held us back is not the generator's fault.
            self._lateness.add(sent_ns - np.maximum(intended_ns, sender.free_since_ns))
            stamps["sent_ns"][:count] = sent_ns
            self._log.append(
                SENT, count, sender.number, range(first, first + count), 1, intended_ns, sent_ns, sender.group.size
            )
        else:
            sent_ns = time.monotonic_ns()
            stamps["intended_ns"][:count] = sent_ns
            stamps["sent_ns"][:count] = sent_ns
            self._log.append(
                SENT, count, sender.number, range(first, first + count), 1, sent_ns, sent_ns, sender.group.size
            )
        sender.next_seq = first + count
        sender.last_sent_ns = sent_ns
        if sender.awaits_outcomes:
            sender.flights.append(Flight(first, first + count - 1, sent_ns))
            sender.in_flight += count
        sender.channel.send(count)

    def _poll(self, wait_ns: int) -> None:
        # An epoll waits in whole milliseconds, select in microseconds; so select waits for the epoll.
        if wait_ns > 0:
            select.select((self._epoll,), (), (), wait_ns / 1e9)
        for number, mask in self._epoll.poll(0):
            index = self._by_file[number]
            sender = self._senders[index]
            if mask & select.EPOLLOUT and sender.channel.flush():
                self._watch(sender, writable=False)
            if mask & ~select.EPOLLOUT:
                outcomes = sender.channel.pump()
                if outcomes:
                    self._settle(sender, outcomes, sender.channel.read_ns)
            if sender.blocked.running:
                self._runnable.add(index)

    def _settle(self, sender: Sender, outcomes: list[Outcome], settled_ns: int) -> None:
        for outcome in outcomes:
            for flight in take_flights(sender.flights, outcome.first_seq, outcome.last_seq):
                sender.in_flight -= flight.last_seq - flight.first_seq + 1
                self._log.append(
                    SETTLED, 1, sender.number, flight.first_seq, flight.last_seq, flight.sent_ns, settled_ns,
                    int(outcome.settlement),
                )  # fmt: skip

    # -- once in a while -----------------------------------------------------------------------------------------

    def _wait_for_start(self) -> None:
        while (left_ns := self._t0_ns - time.monotonic_ns()) > 0:
            self._poll(min(left_ns, _IDLE_WAIT_NS))

    def _wait_ns(self, now_ns: int) -> int:
        """How long nothing needs doing: until the next due time, but not so short that waiting eats the CPU."""
        if self._runnable:
            return 0
        wait_ns = self._waiting[0][0] - now_ns if self._waiting else _IDLE_WAIT_NS
        return min(max(wait_ns, QUANTUM_NS), _IDLE_WAIT_NS)

    def _watch(self, sender: Sender, *, writable: bool) -> None:
        if sender.channel.closed is None:
            mask = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
            self._epoll.modify(sender.channel.fileno(), mask)

    def _housekeep(self, now_ns: int) -> None:
        for index, sender in enumerate(self._senders):
            sender.channel.keep_alive(now_ns)
            if sender.blocked.running:
                self._runnable.add(index)  # time alone may have ended its turn
            if sender.channel.closed is not None and sender.number not in self._reported_closed:
                self._reported_closed.add(sender.number)
                self._control.event("disconnect", {"sender": sender.number, "reason": sender.channel.closed})
                # It will not send again, so nobody waits for the time at which it would have.
                self._waiting = [entry for entry in self._waiting if entry[1] != index]
                heapq.heapify(self._waiting)
                self._runnable.add(index)

    def statistics(self, now_ns: int) -> Statistics:
        counts: dict[str, int] = {}
        for sender in self._senders:
            counts[sender.group.address] = counts.get(sender.group.address, 0) + sender.next_seq
        messages = sum(counts.values())
        rate, cores = self._pulse.beat(now_ns, messages)
        p99_ns = self._lateness.fold(99.0)
        elapsed_ns = max(now_ns - self._t0_ns, 1) * max(len(self._senders), 1)
        blocked_ns = sum(sender.blocked.elapsed_ns(now_ns) for sender in self._senders)
        unsent = sum(max(sender.due(now_ns - self._t0_ns), 0) for sender in self._senders if sender.pacer.bounded)
        values = {
            "blocked_share": blocked_ns / elapsed_ns,
            "lateness_p50_ns": self._lateness.overall(50.0),
            "lateness_p99_ns": self._lateness.overall(99.0),
            "last_sent_ns": max((sender.last_sent_ns for sender in self._senders), default=0) or None,
            "unsent": unsent,
            "unsettled": sum(sender.in_flight for sender in self._senders),
            "batch_share": sum(sender.channel.batched for sender in self._senders) / messages if messages else None,
            "cpu_seconds": time.process_time(),
        }
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, known(values))


def take_flights(flights: deque[Flight], first_seq: int, last_seq: int) -> list[Flight]:
    """Take the sequence numbers first to last out of what is in flight, cut where the send time changes."""
    taken: list[Flight] = []
    skipped: list[Flight] = []
    while flights and flights[0].first_seq <= last_seq:
        flight = flights.popleft()
        low, high = max(flight.first_seq, first_seq), min(flight.last_seq, last_seq)
        if low > high:
            skipped.append(flight)
            continue
        taken.append(Flight(low, high, flight.sent_ns))
        if flight.first_seq < low:
            skipped.append(Flight(flight.first_seq, low - 1, flight.sent_ns))
        if flight.last_seq > high:
            flights.appendleft(Flight(high + 1, flight.last_seq, flight.sent_ns))
            break
    flights.extendleft(reversed(skipped))
    return taken
