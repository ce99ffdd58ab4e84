"""What arrived, when, and was it ours?

One loop drives all receiving connections of a process. Each read yields batches; their stamps become rows, with one
receive time a read. A payload without a stamp is corrupt, one of another run is a stray, one that is older than what
its sender already delivered here is out of order: all are recorded, none is dropped.
"""

import heapq
import select
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from crescendo.control.notes import Statistics
from crescendo.load.driver import Arrived, Channel, Octets, ReceiveChannel
from crescendo.load.echo import Echo
from crescendo.load.farewell import PATIENCE_S, part
from crescendo.load.gathering import Gathering
from crescendo.load.lifeline import Change, Diallers, Lifeline
from crescendo.load.sender import Control
from crescendo.load.statistics import Distribution, Pulse, known
from crescendo.load.summarizer import Summarizer
from crescendo.model.workload import MAX_CONNECTIONS, STAMP_BYTES, Group
from crescendo.record.schema import RECEIVED, Flag
from crescendo.record.writer import Log
from crescendo.wire.stamp import MAGIC, ONE_STAMP, Stamps, head_of, stamps_of, words_of

Int64s = npt.NDArray[np.int64]

_WAIT_S = 0.05
_HOUSEKEEPING_NS = 50_000_000
_REPORT_NS = 1_000_000_000
_DRAIN_REPORT_NS = 100_000_000
NOBODY = -1
MAX_SEQUENCE = 2**62


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
        echo: Echo | None = None,
    ) -> None:
        self.number = number
        self.group = group
        self.line = Lifeline(channel, redial, seed=number)
        self.summarizer = summarizer
        self.echo = echo
        self.consuming_ns = group.consuming_ns
        self.resume_ns = 0  # busy with what it took until then
        self.arrivals = 0
        self.batched = 0
        self.watched = 0
        self.highest: dict[int, int] = {}

    @property
    def channel(self) -> ReceiveChannel:
        return self.line.channel

    @property
    def channels(self) -> Iterator[Channel]:
        """All that it holds: its own, and those on which it answers or sums up."""
        yield self.channel
        if self.summarizer is not None:
            yield self.summarizer.channel
        if self.echo is not None:
            yield from self.echo.channels.values()


class ReceiverEngine:
    """Drives the receivers of one process."""

    def __init__(self, receivers: list[Receiver], log: Log, control: Control, *, tag: int) -> None:
        self._receivers = receivers
        self._log = log
        self._control = control
        self._tag = tag
        self._response = Distribution()
        self._busy_ns = 0
        self._waited_ns = 0
        self._epoll = select.epoll()
        self._by_file: dict[int, Receiver] = {}
        self._busy: list[tuple[int, int]] = []  # a heap: when a slow receiver is done, and which (its place)
        self._diallers = Diallers()
        self._gathering = Gathering(unhurried=all(receiver.group.unhurried for receiver in receivers))
        self._window = min((receiver.channel.window for receiver in receivers), default=0)
        self._response_ns = 0  # of the last message that arrived
        self._pulse = Pulse(time.monotonic_ns())
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
        self._pulse = Pulse(now_ns)
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
        part((channel for receiver in self._receivers for channel in receiver.channels), patience_s)
        self._epoll.close()

    @property
    def failure(self) -> str | None:
        return None if any(not one.line.lost for one in self._receivers) else self._receivers[0].channel.closed

    def _poll(self) -> None:
        if pause_s := self._gathering.pause_s(time.monotonic_ns(), self._window):
            time.sleep(pause_s)
        before_ns = time.monotonic_ns()
        wait_s = _WAIT_S if not self._busy else min(max((self._busy[0][0] - before_ns) / 1e9, 0.0), _WAIT_S)
        ready = self._epoll.poll(wait_s)
        woken_ns = time.monotonic_ns()
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
        before = receiver.arrivals
        for arrived in receiver.channel.pump():
            self._take(receiver, arrived, receiver.channel.read_ns)
            if receiver.summarizer is not None:
                receiver.summarizer.take(arrived.payloads)
            if receiver.echo is not None:
                receiver.echo.answer(arrived.payloads, time.monotonic_ns())
        taken = receiver.arrivals - before
        self._gathering.add(taken, self._response_ns)
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

    def _take(self, receiver: Receiver, arrived: Arrived, received_ns: int) -> None:
        payloads = arrived.payloads
        count, size = payloads.shape
        first_arrival = receiver.arrivals
        receiver.arrivals += count
        if arrived.batched:
            receiver.batched += count
        base = int(Flag.REDELIVERED) if arrived.redelivered else 0
        if count > 1 and size >= STAMP_BYTES:
            if self._take_in_order(receiver, payloads, received_ns, first_arrival, base):
                return
            stamps = stamps_of(payloads)
            if self._all_ours(stamps):
                self._take_stamped(receiver, stamps, received_ns, first_arrival, size, base)
                return
        for index, payload in enumerate(payloads):
            self._take_one(receiver, payload, received_ns, first_arrival + index, base)

    def _take_in_order(
        self, receiver: Receiver, payloads: Octets, received_ns: int, first_arrival: int, base: int
    ) -> bool:
        """What arrives nearly always, with as few operations as it takes: the next messages of one sender of ours."""
        words = words_of(payloads)
        heads, sequence = words[:, 0], words[:, 1]
        first, count = int(sequence[0]), len(sequence)
        if np.count_nonzero(heads != heads[0]) or np.count_nonzero(sequence != np.arange(first, first + count)):
            return False  # counting is the quickest way to ask whether any
        magic, sender, tag = head_of(int(heads[0]))
        if magic != MAGIC or tag != self._tag or sender > MAX_CONNECTIONS or not 0 <= first <= MAX_SEQUENCE - count:
            return False
        if first < receiver.highest.get(sender, NOBODY):
            return False
        receiver.highest[sender] = first + count - 1
        intended_ns, sent_ns = words[:, 2], words[:, 3]
        self._respond(received_ns - intended_ns)
        self._log.append(
            RECEIVED, count, receiver.number, sender, range(first, first + count), intended_ns, sent_ns, received_ns,
            range(first_arrival, first_arrival + count), payloads.shape[1], base,
        )  # fmt: skip
        return True

    def _take_stamped(
        self, receiver: Receiver, stamps: Stamps, received_ns: int, first_arrival: int, size: int, base: int
    ) -> None:
        """Several messages of ours, of any senders and in any order."""
        count = len(stamps)
        sequence = stamps["seq"].astype(np.int64)
        intended_ns = stamps["intended_ns"].astype(np.int64)
        sent_ns = stamps["sent_ns"].astype(np.int64)
        senders = stamps["sender"].astype(np.int16)
        flags = order_flags(senders, sequence, receiver.highest)
        self._respond(received_ns - intended_ns)
        self._log.append(
            RECEIVED, count, receiver.number, the_only(senders), as_count(sequence), intended_ns, sent_ns, received_ns,
            range(first_arrival, first_arrival + count), size, base if flags is None else flags | base,
        )  # fmt: skip

    def _respond(self, responses_ns: Int64s) -> None:
        self._response_ns = int(responses_ns[-1])
        self._response.add(responses_ns)

    def _all_ours(self, stamps: Stamps) -> bool:
        return bool(
            (stamps["magic"] == MAGIC).all()
            and (stamps["tag"] == self._tag).all()
            and (stamps["sender"] <= MAX_CONNECTIONS).all()
            and (stamps["seq"] <= MAX_SEQUENCE).all()
        )

    def _take_one(self, receiver: Receiver, payload: Octets, received_ns: int, arrival: int, base: int) -> None:
        """A single message, or one of a batch with something foreign in it."""
        size = len(payload)
        magic, sender, tag, sequence, intended_ns, sent_ns = (
            ONE_STAMP.unpack_from(payload.data) if size >= STAMP_BYTES else (0, 0, 0, 0, 0, 0)
        )
        sound = magic == MAGIC and sender <= MAX_CONNECTIONS and sequence <= MAX_SEQUENCE
        if sound and tag == self._tag:
            highest = receiver.highest.get(sender, NOBODY)
            if sequence < highest:
                base |= Flag.OUT_OF_ORDER
            else:
                receiver.highest[sender] = sequence
            self._response_ns = received_ns - intended_ns
            self._response.add_one(self._response_ns)
        else:
            base |= Flag.STRAY if sound else Flag.CORRUPT
            sender, sequence, intended_ns, sent_ns = NOBODY, NOBODY, received_ns, received_ns
        self._log.append_one(
            RECEIVED, receiver.number, sender, sequence, intended_ns, sent_ns, received_ns, arrival, size, int(base)
        )

    def _watch(self, receiver: Receiver, *, writable: bool) -> None:
        mask = (0 if receiver.resume_ns else select.EPOLLIN) | (select.EPOLLOUT if writable else 0)
        if receiver.channel.closed is None and mask != receiver.watched:
            receiver.watched = mask
            self._epoll.modify(receiver.channel.fileno(), mask)

    def _housekeep(self, now_ns: int) -> None:
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
            case Change.LOST | Change.INTERRUPTED:
                self._control.event("disconnect", {"receiver": receiver.number, "reason": receiver.line.reason})
            case Change.DIALLED:
                self._adopt(receiver)
            case Change.RESTORED:
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

    def statistics(self, now_ns: int) -> Statistics:
        counts: dict[str, int] = {}
        for receiver in self._receivers:
            counts[receiver.group.meeting] = counts.get(receiver.group.meeting, 0) + receiver.arrivals
        messages = sum(counts.values())
        rate, cores = self._pulse.beat(now_ns, messages)
        batched = sum(receiver.batched for receiver in self._receivers)
        p99_ns = self._response.fold(99.0)
        values = {
            "second_response_p90_ns": self._response.latest(90.0),
            "second_response_max_ns": self._response.latest(100.0),
            "busy_share": self._busy_ns / max(self._busy_ns + self._waited_ns, 1),
            "batch_share": batched / messages if messages else None,
            "cpu_seconds": time.process_time(),
        }
        return Statistics(now_ns, counts, messages, rate, p99_ns, cores, known(values))


def the_only(values: npt.NDArray[np.int16]) -> npt.NDArray[np.int16] | int:
    """One value where all are the same: that much less to keep."""
    return int(values[0]) if (values == values[0]).all() else values


def as_count(numbers: Int64s) -> Int64s | range:
    """A range where the numbers count up one by one."""
    first, last = int(numbers[0]), int(numbers[-1])
    counts = last - first == len(numbers) - 1 and (numbers[1:] - numbers[:-1] == 1).all()
    return range(first, last + 1) if counts else numbers


def order_flags(
    senders: npt.NDArray[np.int16], sequence: Int64s, highest: dict[int, int]
) -> npt.NDArray[np.int16] | None:
    """OUT_OF_ORDER for each message below one that its sender already delivered here; None when none is."""
    first = int(senders[0])
    if (senders == first).all():
        late = _below_earlier(sequence, first, highest)
    else:
        late = np.zeros(len(senders), bool)
        for sender in np.unique(senders).tolist():
            places = np.flatnonzero(senders == sender)
            late[places] = _below_earlier(sequence[places], sender, highest)
    return np.where(late, np.int16(Flag.OUT_OF_ORDER), np.int16(0)) if late.any() else None


def _below_earlier(sequence: Int64s, sender: int, highest: dict[int, int]) -> npt.NDArray[np.bool_]:
    earlier = np.maximum.accumulate(np.concatenate(([highest.get(sender, NOBODY)], sequence)))
    highest[sender] = int(earlier[-1])
    late: npt.NDArray[np.bool_] = sequence < earlier[:-1]
    return late
