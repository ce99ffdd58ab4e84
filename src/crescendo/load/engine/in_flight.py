"""Which messages are in flight, since when, and which of them does an outcome settle?

A ring indexed by sequence number holds the send time of each message. Outcomes arrive in any order, one by one or by
the thousand, so taking one and taking many must both be fast, anywhere in the ring: one is an access to a standard
library array, many are a few NumPy operations on the same memory.

Messages that are sent many at a time and settled in the same order need no ring: they stay in a queue of ranges until
the first outcome out of order.
"""

from array import array
from collections import deque
from typing import NamedTuple

import numpy as np

from crescendo.model.arrays import Int64s

FIRST_ATTEMPT = 1
_EMPTY = -1  # not a possible send time
_SLOTS = 1 << 8
_SMALL_RANGE = 8  # messages; the ring handles ranges as short as this well, and many of them would slow the queue


class SeqRange(NamedTuple):
    """Consecutive messages to send, all at once if there is room."""

    first_seq: int
    length: int
    attempt: int = FIRST_ATTEMPT
    first_sent_ns: int = 0  # when they were first sent; 0 if they were not


class SettledRange(NamedTuple):
    """Messages first to last (inclusive) that were sent together and are settled."""

    first_seq: int
    last_seq: int
    sent_ns: int


class SettledRanges(NamedTuple):
    """Settled messages that were not sent together: several `SettledRange`s as columns."""

    messages: int
    first_seq: Int64s
    last_seq: Int64s
    sent_ns: Int64s


class InFlight:
    """The messages of one sender that were sent and are not settled."""

    def __init__(self) -> None:
        self.count = 0
        self._low = self._high = 0  # every message in flight is in [_low, _high)
        self._queue: deque[tuple[int, int, int]] = deque()  # first, end, send time; while it has any, the ring is empty
        self._resent: dict[int, tuple[int, int]] = {}  # of messages sent again: attempt, first send time
        self._allocate_ring(_SLOTS)

    def add_one(self, seq: int, sent_ns: int) -> None:
        """A message is sent for the first time."""
        if self._queue:
            self._move_queue_to_ring()
        if seq != self._high or seq - self._low > self._mask:
            self._ensure_span(seq, seq + 1)
        else:
            self._high = seq + 1
        self._sent[seq & self._mask] = sent_ns
        self.count += 1

    def add(self, seq_range: SeqRange, sent_ns: int) -> None:
        """These messages are sent now. None of them is in flight already."""
        first, end = seq_range.first_seq, seq_range.first_seq + seq_range.length
        queue = self._queue
        in_order = queue[-1][1] <= first if queue else not self.count
        if in_order and seq_range.length > _SMALL_RANGE and seq_range.attempt == FIRST_ATTEMPT:
            queue.append((first, end, sent_ns))
            self.count += seq_range.length
            return
        if queue:
            self._move_queue_to_ring()
        self._ensure_span(first, end)
        self._put(first, end, sent_ns)
        self.count += seq_range.length
        if seq_range.attempt != FIRST_ATTEMPT:
            self._resent.update(dict.fromkeys(range(first, end), (seq_range.attempt, seq_range.first_sent_ns)))

    def take(self, seqs: range | Int64s) -> SettledRange | SettledRanges | None:
        """Remove those of these that are in flight; sequence numbers in any order."""
        if self._queue:
            if isinstance(seqs, range) and seqs.start <= self._queue[0][0]:
                return self._take_from_queue(seqs.stop)
            self._move_queue_to_ring()
        if len(seqs) == 1:
            return self._take_one(int(seqs[0]))
        if isinstance(seqs, range):
            return self._take_range(max(seqs.start, self._low), min(seqs.stop, self._high))
        if np.count_nonzero(seqs[1:] <= seqs[:-1]):
            seqs = np.unique(seqs)
        seqs = seqs[(seqs >= self._low) & (seqs < self._high)]
        slots = seqs & self._mask
        sent_ns = self._view[slots]
        self._view[slots] = _EMPTY
        return self._settled_ranges(seqs, sent_ns)

    def take_unsettled(self) -> list[SeqRange]:
        """The connection is lost: remove all messages in flight and return them, in order, ready to be sent again."""
        if self._queue:
            self._move_queue_to_ring()
        sent_ns = self._get(self._low, self._high)
        present = np.flatnonzero(sent_ns != _EMPTY)
        seqs, first_sent_ns, attempts = present + self._low, sent_ns[present], np.full(len(present), FIRST_ATTEMPT)
        for index, seq in enumerate(seqs.tolist() if self._resent else ()):
            if seq in self._resent:
                attempts[index], first_sent_ns[index] = self._resent[seq]
        self._put(self._low, self._high, _EMPTY)
        self._low, self.count = self._high, 0
        self._resent.clear()
        contiguous = (np.diff(seqs) == 1) & (np.diff(attempts) == 0) & (np.diff(first_sent_ns) == 0)
        begins = np.append(0, np.flatnonzero(~contiguous) + 1) if len(seqs) else np.empty(0, np.int64)
        lengths = np.diff(np.append(begins, len(seqs)))
        columns = (seqs[begins], lengths, attempts[begins] + 1, first_sent_ns[begins])
        return [SeqRange(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _take_from_queue(self, end: int) -> SettledRange | SettledRanges | None:
        """Remove everything below `end` from the queue."""
        queue, settled = self._queue, []
        while queue and queue[0][0] < end:
            first, stop, sent_ns = queue.popleft()
            if stop > end:
                queue.appendleft((end, stop, sent_ns))
                stop = end
            self.count -= stop - first
            settled.append((first, stop - 1, sent_ns))
        if len(settled) <= 1:
            return SettledRange(*settled[0]) if settled else None
        firsts, lasts, sent = np.array(settled, np.int64).T
        return SettledRanges(int((lasts - firsts).sum()) + len(settled), firsts, lasts, sent)

    def _move_queue_to_ring(self) -> None:
        """Something was sent or settled out of order: from now on the ring tracks everything."""
        queued = list(self._queue)
        self._queue.clear()
        self.count = 0
        for first, end, sent_ns in queued:
            self._ensure_span(first, end)
            self._put(first, end, sent_ns)
            self.count += end - first

    def _take_one(self, seq: int) -> SettledRange | None:
        sent_ns = self._sent[seq & self._mask] if self._low <= seq < self._high else _EMPTY
        if sent_ns == _EMPTY:
            return None
        self._sent[seq & self._mask] = _EMPTY
        if seq == self._low:
            self._low = seq + 1
        self.count -= 1
        return SettledRange(seq, seq, sent_ns)

    def _take_range(self, first: int, end: int) -> SettledRange | SettledRanges | None:
        if first >= end:
            return None
        sent_ns = self._get(first, end)
        self._put(first, end, _EMPTY)
        if first == self._low:
            self._low = end
        if sent_ns[0] != _EMPTY and not np.count_nonzero(sent_ns != sent_ns[0]):
            self.count -= end - first
            return SettledRange(first, end - 1, int(sent_ns[0]))
        return self._settled_ranges(np.arange(first, end), sent_ns)

    def _settled_ranges(self, seqs: Int64s, sent_ns: Int64s) -> SettledRange | SettledRanges | None:
        present = sent_ns != _EMPTY
        if np.count_nonzero(present) < len(present):
            seqs, sent_ns = seqs[present], sent_ns[present]
        if not len(seqs):
            return None
        self.count -= len(seqs)
        breaks = ((seqs[1:] - seqs[:-1] != 1) | (sent_ns[1:] != sent_ns[:-1])).nonzero()[0]
        firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(seqs) - 1)
        if len(firsts) == 1:
            return SettledRange(int(seqs[0]), int(seqs[-1]), int(sent_ns[0]))
        return SettledRanges(len(seqs), seqs[firsts], seqs[lasts], sent_ns[firsts])

    # -- the ring ------------------------------------------------------------------------------------------------

    def _allocate_ring(self, slots: int) -> None:
        self._sent = array("q", (_EMPTY,)) * slots
        self._view: Int64s = np.frombuffer(self._sent, np.int64)
        self._mask = slots - 1

    def _get(self, first: int, end: int) -> Int64s:
        """A copy of the send times of these."""
        start, stop = first & self._mask, ((end - 1) & self._mask) + 1
        if start < stop or first == end:
            return self._view[start : start + end - first].copy()
        return np.concatenate((self._view[start:], self._view[:stop]))

    def _put(self, first: int, end: int, sent_ns: int) -> None:
        start, stop = first & self._mask, ((end - 1) & self._mask) + 1
        if start < stop or first == end:
            self._view[start : start + end - first] = sent_ns
        else:
            self._view[start:] = sent_ns
            self._view[:stop] = sent_ns

    def _ensure_span(self, first: int, end: int) -> None:
        """Make the ring span these as well."""
        if not self.count:
            self._low = self._high = first
        low, high = min(first, self._low), max(end, self._high)
        if high - low > len(self._view):
            # Messages settled long ago need not be spanned. Half of the ring stays free, so that this happens rarely.
            present = np.flatnonzero(self._get(self._low, self._high) != _EMPTY)
            low = min(first, self._low + int(present[0]) if len(present) else high)
            slots = len(self._view)
            while high - low > slots // 2:
                slots *= 2
            self._resize_ring(low, slots)
        self._low, self._high = low, high

    def _resize_ring(self, low: int, slots: int) -> None:
        """Move to a ring of this many slots; nothing below `low` is in flight any more."""
        if slots == len(self._view):
            return
        spanned = range(max(low, self._low), self._high)
        sent_ns = self._get(spanned.start, spanned.stop)
        self._allocate_ring(slots)
        self._view[np.arange(spanned.start, spanned.stop) & self._mask] = sent_ns
