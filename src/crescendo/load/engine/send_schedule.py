"""Which messages does one connection send next?

Messages that are due and were never sent, in order; before them those that must be sent again, or found no room; and
with a bounded buffer only as many as fit, because the rest is shed. Reads no clock and sends nothing.
"""

from collections import deque

import numpy as np

from crescendo.load.assignment import Quota
from crescendo.load.engine.in_flight import SeqRange
from crescendo.model.arrays import Int64s
from crescendo.model.pacer import Pacer

_DUE_LOOKAHEAD = 64  # due times are computed in bulk: one by one they would cost more than sending


class SendSchedule:
    """The messages of one connection, and how far it has come. All times are those of the engine's clock."""

    def __init__(self, pacer: Pacer, quota: Quota, buffer: int | None = None) -> None:
        self.bounded = pacer.bounded
        self.total = quota.total
        self.next_seq = 0  # the first message that was neither taken, sent nor shed
        self.shed = 0
        self.start_ns = 0
        self._pacer = pacer
        self._quota = quota
        self._buffer = buffer
        self._waiting: deque[SeqRange] = deque()  # to be sent before anything new
        self._waiting_count = 0
        self._due_ns: list[int] = []  # of the messages from _due_from on
        self._due_from = 0

    def start(self, start_ns: int) -> None:
        """Message 0 and the quota count from this time on."""
        self.start_ns, self._due_ns = start_ns, []

    def change(self, pacer: Pacer, total: int) -> None:
        """Follow another pacer, which agrees with the present one about every message that is due by now."""
        self._pacer, self.total, self._due_ns = pacer, total, []

    def due(self, now_ns: int) -> int:
        """How many messages may be sent by now."""
        return max(self._due_by(now_ns) - self.next_seq, 0) + self._waiting_count

    def due_ns(self, seq: int) -> int:
        """When a message is due, usually one of the next ones."""
        index = seq - self._due_from
        if not 0 <= index < len(self._due_ns):
            self._due_ns = self.intended_ns(np.arange(seq, seq + _DUE_LOOKAHEAD, dtype=np.int64)).tolist()
            self._due_from, index = seq, 0
        return self._due_ns[index]

    def intended_ns(self, seqs: Int64s) -> Int64s:
        """When each of these messages is due."""
        return self._pacer.due_ns(seqs) + self.start_ns

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be sent."""
        return self.next_seq >= self.total and not self._waiting_count

    @property
    def is_plain(self) -> bool:
        """Whether the next messages are the next numbers, at their own times."""
        return self.bounded and self._buffer is None and not self._waiting

    @property
    def waiting(self) -> int:
        """Messages that come before the next number."""
        return self._waiting_count

    def take(self, limit: int) -> SeqRange:
        """At most `limit` of the messages that are due."""
        if not self._waiting:
            first, self.next_seq = self.next_seq, self.next_seq + limit
            return SeqRange(first, limit)
        seq_range = self._waiting.popleft()
        if seq_range.length > limit:
            self._waiting.appendleft(
                seq_range._replace(first_seq=seq_range.first_seq + limit, length=seq_range.length - limit)
            )
            seq_range = seq_range._replace(length=limit)
        self._waiting_count -= seq_range.length
        return seq_range

    def advance(self, count: int) -> None:
        """The next messages were sent as planned."""
        self.next_seq += count

    def put_back(self, *seq_ranges: SeqRange) -> None:
        """These messages are to be sent before all others: there was no room for them, or their connection is lost."""
        self._waiting.extendleft(reversed(seq_ranges))
        self._waiting_count += sum(seq_range.length for seq_range in seq_ranges)

    def shed_overflow(self, now_ns: int, room: int) -> range:
        """Buffer the due messages that cannot be sent; return the sequence numbers that do not fit and are shed."""
        due = self._due_by(now_ns)
        if self._buffer is None or due <= self.next_seq:
            return range(0)
        kept = max(min(due - self.next_seq, room + self._buffer - self._waiting_count), 0)
        if kept:
            self._waiting.append(SeqRange(self.next_seq, kept))
            self._waiting_count += kept
        shed = range(self.next_seq + kept, due)
        self.next_seq = due
        self.shed += len(shed)
        return shed

    def _due_by(self, now_ns: int) -> int:
        following = self.next_seq
        if self.bounded:  # mostly none or one is due, which the cached due times show
            if following >= self.total or self.due_ns(following) > now_ns:
                return following
            following += 1
            if following >= self.total or self.due_ns(following) > now_ns:
                return following
            return min(self._pacer.due_count(now_ns - self.start_ns), self.total)
        if now_ns < self.start_ns:
            return following
        self._end_by_time(now_ns - self.start_ns)
        return self.total

    def _end_by_time(self, elapsed_ns: int) -> None:
        """Without due times, the number of messages may depend on the time: it does once the warm-up is over."""
        quota = self._quota
        if quota.count_after_warmup is not None and elapsed_ns >= quota.warmup_ns:
            self.total = self.next_seq + quota.count_after_warmup
            self._quota = Quota(self.total, quota.until_ns)
        if elapsed_ns >= quota.until_ns:
            self.total = self.next_seq
