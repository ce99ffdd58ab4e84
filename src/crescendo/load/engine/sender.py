"""Which messages does one connection send next?

Messages that are due and were never sent, in order; before them those that were in flight when the connection was lost;
and with a bounded buffer only as many as fit, because the rest is shed. Writes nothing to the network by itself.
"""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from crescendo.load.assignment import Quota
from crescendo.load.engine.echo import EchoReplies
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, InFlight, SeqRange, SettledRange, SettledRanges
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.engine.statistics import Stopwatch
from crescendo.load.protocols.interfaces import LoadChannel, SendChannel, SettledMessages
from crescendo.model.arrays import Int64s
from crescendo.model.pacer import Pacer
from crescendo.model.workload import Group, PingPongMode, Settle
from crescendo.wire.stamp import MAGIC, stamp_words

SMALL_BATCH = 8
"""Up to this many messages are stamped one by one: setting up arrays would cost more than everything else."""
MAX_CREDIT_WAIT_NS = 1_000_000
"""Once this long has passed since its last message, a sender no longer waits for more credit before it sends."""

_MIN_BATCH_DIVISOR = 4  # a batch is large enough at this fraction of the messages in flight
_DUE_LOOKAHEAD = 64  # due times are computed in bulk: one by one they would cost more than sending


class Sender:
    """One sending connection and where it is in its schedule."""

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
        self.connection = ReconnectingChannel(channel, redial, seed=number)
        self.tag = tag
        self.pacer = pacer
        self.quota = quota
        self.total = quota.total
        self.next_seq = 0
        self.sent = 0
        self.shed = 0
        self.blocked = Stopwatch()
        self.free_since_ns = 0
        self.last_sent_ns = 0
        self.awaits_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self.sizes = None if group.size.is_fixed else group.size.sizes(seed, number)
        self.fixed_size = int(group.size)
        self.lines = group.size.lines
        self.stamped_batch: object = None  # the batch whose stamps have their constant fields
        self.first_bodies: list[memoryview] = []  # of that batch
        # Of that batch: sequence numbers; intended and send times.
        self.columns: tuple[Int64s, Int64s] = np.empty(0, np.int64), np.empty((0, 2), np.int64)
        self.replies = replies
        self.unsettled = InFlight()
        self._batched_before = 0  # on earlier connections
        self._backlog: deque[SeqRange] = deque()  # to be sent before anything new
        self._backlog_count = 0  # messages in the backlog
        self._due_ns: list[int] = []  # of the messages from _due_from on
        self._due_from = 0
        self._credit = 0  # messages that may be sent before `room` must be called again
        self._window = group.window
        self._ping_pong = replies is not None and isinstance(group.mode, PingPongMode)
        self._uniform = pacer.bounded and group.size.is_fixed and group.buffer is None and replies is None

    @property
    def channel(self) -> SendChannel:
        return self.connection.channel

    @property
    def channels(self) -> Iterator[LoadChannel]:
        """All its connections: its own, and the one that receives echoes."""
        yield self.channel
        if self.replies is not None:
            yield self.replies.channel

    def due(self, elapsed_ns: int) -> int:
        """How many messages are due and not sent."""
        return max(self._due_by(elapsed_ns) - self.next_seq, 0) + self._backlog_count

    def _due_by(self, elapsed_ns: int) -> int:
        following = self.next_seq
        if self.pacer.bounded:  # mostly none or one is due, which the cached due times show
            if following >= self.total or self.due_ns(following) > elapsed_ns:
                return following
            following += 1
            if following >= self.total or self.due_ns(following) > elapsed_ns:
                return following
            return min(self.pacer.due_count(elapsed_ns), self.total)
        if self.quota.count_after_warmup is not None and elapsed_ns >= self.quota.warmup_ns:
            self.total = self.next_seq + self.quota.count_after_warmup
            self.quota = Quota(self.total, self.quota.until_ns)
        if elapsed_ns >= self.quota.until_ns:
            self.total = self.next_seq
        return min(self.pacer.due_count(elapsed_ns), self.total)

    def due_ns(self, seq: int) -> int:
        """The intended offset of a message, usually one of the next ones."""
        index = seq - self._due_from
        if not 0 <= index < len(self._due_ns):
            self._due_ns = self.pacer.due_ns(np.arange(seq, seq + _DUE_LOOKAHEAD, dtype=np.int64)).tolist()
            self._due_from, index = seq, 0
        return self._due_ns[index]

    @property
    def is_predictable(self) -> bool:
        """Whether the content and the due times of its next messages are known."""
        return self._uniform and not self._backlog and not self.blocked.running

    def mark_prepared_sent(self, sent_ns: list[int]) -> None:
        """The next messages were sent, one at each of these times."""
        first = self.next_seq
        self.next_seq += len(sent_ns)
        self.sent += len(sent_ns)
        self.last_sent_ns = sent_ns[-1]
        self._credit = 0
        if self.awaits_outcomes:
            for seq, at_ns in enumerate(sent_ns, first):
                self.unsettled.add_one(seq, at_ns)

    def stamp_constants(self, count: int) -> None:
        """Write the fields that all stamps of a connection share into the first `count`, if the batch is new."""
        channel = self.channel
        if channel.stamps is self.stamped_batch:
            return
        stamps = channel.stamps[:count]
        stamps["magic"] = MAGIC
        stamps["sender"] = self.number
        stamps["tag"] = self.tag
        self.stamped_batch = channel.stamps
        words = stamp_words(channel.bodies)
        self.columns = words[:, 1], words[:, 2:]
        self.first_bodies = [body.data for body in channel.bodies[:SMALL_BATCH]]

    @property
    def in_flight(self) -> int:
        """How many messages were sent and are not settled."""
        return self.unsettled.count

    @property
    def batched(self) -> int:
        """Messages that were sent by the batch path."""
        return self._batched_before + self.channel.batched

    @property
    def exhausted(self) -> bool:
        return self.connection.lost or (self.next_seq >= self.total and not self._backlog_count)

    def grant(self, count: int) -> int:
        """How many of these messages may be sent now. `room` is asked again only after a read or a partial write."""
        channel = self.connection.channel
        if self._credit < count or channel.closed is not None:
            self._credit = self.room()
        granted = min(count, self._credit)
        self._credit -= granted
        return granted

    def pump(self) -> list[SettledMessages]:
        """Read what arrived; it may have granted or withdrawn credit."""
        self._credit = 0
        return self.connection.channel.pump()

    def send(self, first_seq: int, count: int) -> None:
        """Send the first `count` messages of the batch."""
        if not self.connection.channel.send(first_seq, count):
            self._credit = 0  # the batch must not be changed before its bytes are written

    def room(self) -> int:
        """How many messages may be sent now, by the system's credit and by our own window."""
        room = self.channel.room()
        if self._ping_pong and self.replies is not None:
            return min(room, 1 - (self.sent - self.replies.count))
        return room if self._window is None else min(room, self._window - self.in_flight)

    def should_wait_for_credit(self, granted: int, now_ns: int) -> bool:
        """Whether to hold so small a batch back: settlements in flight will free more credit soon.

        A system that grants credit in small amounts would get small batches, settle them in small batches, and so on.
        """
        enough = self.unsettled.count // _MIN_BATCH_DIVISOR
        return self.group.unpaced and granted < enough and now_ns - self.last_sent_ns < MAX_CREDIT_WAIT_NS

    def return_grant(self, granted: int) -> None:
        """These messages are not sent after all."""
        self._credit += granted

    def drained(self) -> bool:
        """Whether everything was sent, settled where outcomes are awaited, and echoed where echoes are."""
        if self.connection.lost:
            return True
        answered = self.replies is None or self.replies.count >= self.sent
        return answered and not self.in_flight and not self._backlog_count and self.channel.flush()

    def next_range(self, limit: int) -> SeqRange:
        """At most `limit` of the messages that are due."""
        if self._backlog:
            seq_range = self._backlog.popleft()
            if seq_range.length > limit:
                rest = SeqRange(
                    seq_range.first_seq + limit, seq_range.length - limit, seq_range.attempt, seq_range.first_sent_ns
                )  # fmt: skip
                self._backlog.appendleft(rest)
                seq_range = seq_range._replace(length=limit)
            self._backlog_count -= seq_range.length
            return seq_range
        first = self.next_seq
        self.next_seq += limit
        return SeqRange(first, limit)

    def put_back(self, seq_range: SeqRange) -> None:
        """Return messages for which there was no room after all."""
        self._backlog.appendleft(seq_range)
        self._backlog_count += seq_range.length

    def shed_overflow(self, elapsed_ns: int, room: int) -> range:
        """Buffer the due messages that cannot be sent; return the sequence numbers that do not fit and are shed."""
        buffer = self.group.buffer
        due = self._due_by(elapsed_ns)
        if buffer is None or due <= self.next_seq:
            return range(0)
        kept = max(min(due - self.next_seq, room + buffer - self._backlog_count), 0)
        if kept:
            self._backlog.append(SeqRange(self.next_seq, kept))
            self._backlog_count += kept
        shed = range(self.next_seq + kept, due)
        self.next_seq = due
        self.shed += len(shed)
        return shed

    def mark_sent(self, seq_range: SeqRange, sent_ns: int) -> None:
        """These messages were sent."""
        self.sent += seq_range.length if seq_range.attempt == FIRST_ATTEMPT else 0
        self.last_sent_ns = sent_ns
        if self.awaits_outcomes:
            self.unsettled.add(seq_range, sent_ns)

    def settle(self, seqs: range | Int64s) -> SettledRange | SettledRanges | None:
        """Remove these messages from the unsettled ones."""
        return self.unsettled.take(seqs)

    def requeue_unsettled(self) -> int:
        """The connection is lost: unsettled messages will be sent again, oldest first. Returns how many."""
        self._credit = 0
        self._batched_before, self.channel.batched = self.batched, 0
        count = self.in_flight
        self._backlog.extendleft(reversed(self.unsettled.take_unsettled()))
        self._backlog_count += count
        return count
