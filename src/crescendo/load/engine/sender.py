"""What does one sending connection do next?

It joins the parts of a connection: its schedule, its window, its batch and its log. Given the time it decides whether
there is nothing to do, nothing may be sent, it is better to wait for more credit, or how many messages to send; the
engine acts on that. Waits for nothing by itself.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from crescendo.load.assignment import Quota
from crescendo.load.engine.echo import EchoReplies
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.engine.send_schedule import SendSchedule
from crescendo.load.engine.send_window import MAX_CREDIT_WAIT_NS, SendWindow
from crescendo.load.engine.sent_log import SentLog
from crescendo.load.engine.settled_log import SettledLog
from crescendo.load.engine.stamped_batch import StampedBatch
from crescendo.load.engine.statistics import Distribution
from crescendo.load.protocols.interfaces import LoadChannel, SendChannel, SettledMessages
from crescendo.model.pacer import Pacer
from crescendo.model.workload import STAMP_BYTES, Group
from crescendo.record.writer import RowSink


class Idle(NamedTuple):
    """Nothing is due; the next message is due at this time, or none is left."""

    due_ns: int | None


class NoRoom(NamedTuple):
    """Messages are due, and the other side leaves no room for any."""


class Wait(NamedTuple):
    """There is room for too few; send them at this time if there is still no more."""

    until_ns: int


class SendNow(NamedTuple):
    """This many of the messages that are due may be sent."""

    messages: int
    due: int


Offer = Idle | NoRoom | Wait | SendNow
_NO_ROOM = NoRoom()


class Sender:
    """One sending connection."""

    batch: StampedBatch
    settled: SettledLog

    def __init__(
        self,
        number: int,
        group: Group,
        pacer: Pacer,
        quota: Quota,
        channel: SendChannel,
        tag: int,
        *,
        seed: int = 1,
        redial: Callable[[int], SendChannel] | None = None,
        replies: EchoReplies | None = None,
    ) -> None:
        self.number = number
        self.group = group
        self.replies = replies
        self.connection = ReconnectingChannel(channel, redial, seed=number)
        self.schedule = SendSchedule(pacer, quota, group.buffer)
        self.window = SendWindow(self.connection, group, replies)
        self._tag = tag
        self._sizes = None if group.size.is_fixed else group.size.sizes(seed, number)
        self._fixed_size = int(group.size)
        self._lines = group.size.lines
        self._batched_before = 0  # on earlier connections
        self._settled = (0, 0)  # how many messages, and since when

    def start(self, start_ns: int, log: RowSink, own_delay: Distribution) -> None:
        """Count from this time on, and record here."""
        sent_log = SentLog(self.number, log, self.window.held, own_delay)
        self.schedule.start(start_ns)
        sent_log.start(start_ns)
        self.batch = StampedBatch(
            self.number,
            self._tag,
            self._fixed_size if self._sizes is None else None,
            self.replies is None,
            self.connection,
            self.schedule,
            self.window,
            sent_log,
        )
        self.settled = SettledLog(self.number, log, self.window)

    @property
    def channel(self) -> SendChannel:
        return self.connection.channel

    @property
    def channels(self) -> Iterator[LoadChannel]:
        """All its connections: its own, and the one that receives echoes."""
        yield self.channel
        if self.replies is not None:
            yield self.replies.channel

    @property
    def batched(self) -> int:
        """Messages that were sent by the batch path."""
        return self._batched_before + self.channel.batched

    @property
    def exhausted(self) -> bool:
        return self.connection.lost or self.schedule.finished

    def drained(self) -> bool:
        """Whether everything was sent, settled where outcomes are awaited, and echoed where echoes are."""
        if self.connection.lost:
            return True
        answered = self.replies is None or self.replies.count >= self.window.sent
        return answered and not self.window.in_flight and not self.schedule.waiting and self.channel.flush()

    def offer(self, now_ns: int) -> Offer:
        """What to do now. Nothing that was prepared and sent is unaccounted for."""
        schedule, window = self.schedule, self.window
        if self.group.buffer is not None:
            self.settled.add_shed(schedule.shed_overflow(now_ns, max(window.room(), 0)), now_ns)
        due = schedule.due(now_ns)
        if due <= 0:
            return Idle(None if self.exhausted else schedule.due_ns(schedule.next_seq))
        granted = window.grant(due)
        if granted <= 0:
            return _NO_ROOM
        if granted < due and window.should_wait_for_credit(granted, now_ns):
            return Wait(window.last_sent_ns + MAX_CREDIT_WAIT_NS)
        return SendNow(granted, due)

    def send(self, count: int) -> int:
        """Send at most `count` of the messages that are due. Returns how many were sent."""
        seq_range = self.schedule.take(count)
        if self._sizes is None:
            self.batch.send(seq_range, self._fixed_size)
            return seq_range.length
        sizes = self._sizes(seq_range.first_seq, seq_range.length)
        sent = 0
        while sent < seq_range.length:
            rest = seq_range._replace(first_seq=seq_range.first_seq + sent, length=seq_range.length - sent)
            changes = np.flatnonzero(sizes[sent:] != sizes[sent])
            same = int(changes[0]) if len(changes) else rest.length
            self.channel.resize(int(sizes[sent]))
            room = self.channel.room()  # a batch must not be changed before its bytes are written
            if room <= 0:
                self.schedule.put_back(rest)
                break
            chunk = rest._replace(length=min(same, room))
            self._write_lines(chunk.first_seq, chunk.length)
            self.batch.send(chunk, int(sizes[sent]))
            sent += chunk.length
        return sent

    def pump(self) -> list[SettledMessages]:
        """Read what arrived; it may have granted or withdrawn credit."""
        if self.window.is_held:
            self.window.became_readable(self.channel.oldest_unread_ns())
        self.batch.commit(revoke=True)
        self.window.revoke()
        return self.channel.pump()

    def limit_waiting(self, now_ns: int) -> None:
        """Give the connection up if messages are in flight and none was settled for too long."""
        timeout_ns, window = self.group.connection.confirm_timeout, self.window
        if timeout_ns is None:
            return
        count, since_ns = self._settled
        if not window.in_flight or window.sent - window.in_flight != count:
            self._settled = (window.sent - window.in_flight, now_ns)
        elif now_ns - since_ns >= timeout_ns:
            self.channel.give_up(f"the system settled none of {window.in_flight:,} messages for {timeout_ns / 1e9:g} s")

    def interrupt(self) -> int:
        """The connection is lost: unsettled messages will be sent again, oldest first. Returns how many."""
        self.batch.discard()
        self._batched_before, self.channel.batched = self.batched, 0
        unsettled = self.window.take_unsettled()
        self.schedule.put_back(*unsettled)
        return sum(seq_range.length for seq_range in unsettled)

    def _write_lines(self, first_seq: int, count: int) -> None:
        """Write lines of a file behind the stamps, if the group sends a file."""
        for row in range(count if self._lines else 0):
            line = self._lines[(first_seq + row) % len(self._lines)]
            self.channel.bodies[row, STAMP_BYTES:] = np.frombuffer(line, np.uint8)
