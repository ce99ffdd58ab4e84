"""What is on its way, since when, and which of it does an outcome settle?

A ring over sequence numbers that holds the time at which each message left. Outcomes come back in any order, alone or
by the thousand, so both taking one and taking many must be quick, wherever in the ring they are: one is a look into an
array of the standard library, many are a few operations on the same memory as NumPy sees it.

What leaves many at a time and lands in the same order needs no ring: it waits in a queue of stretches until an outcome
comes out of turn.
"""

from array import array
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

FIRST_ATTEMPT = 1
_NOT_HERE = -1  # no clock shows it
_SLOTS = 1 << 8
_FEW = 8  # messages; stretches as short as this are no trouble to the ring, and many of them would be to the queue


class Stretch(NamedTuple):
    """Messages to send, in one go if there is room."""

    first_seq: int
    length: int
    attempt: int = FIRST_ATTEMPT
    first_sent_ns: int = 0  # when they left for the first time, if they did


class SettledRange(NamedTuple):
    """Messages first to last (inclusive) that left together and are settled."""

    first_seq: int
    last_seq: int
    sent_ns: int


class SettledRanges(NamedTuple):
    """Messages that are settled but did not leave together: what `SettledRange` says, for several stretches."""

    messages: int
    first_seq: Int64s
    last_seq: Int64s
    sent_ns: Int64s


class InFlight:
    """The messages of one sender that have left and are not settled."""

    def __init__(self) -> None:
        self.count = 0
        self._low = self._high = 0  # nothing is on its way below the one, nor from the other on
        self._queue: deque[tuple[int, int, int]] = deque()  # first, end, sent when; if any are here, the ring is empty
        self._again: dict[int, tuple[int, int]] = {}  # of those sent before: which attempt this is, first sent when
        self._make(_SLOTS)

    def add_one(self, seq: int, sent_ns: int) -> None:
        """A message leaves for the first time."""
        if self._queue:
            self._leave_queue()
        if seq != self._high or seq - self._low > self._mask:
            self._reach(seq, seq + 1)
        else:
            self._high = seq + 1
        self._sent[seq & self._mask] = sent_ns
        self.count += 1

    def add(self, stretch: Stretch, sent_ns: int) -> None:
        """These leave now. None of them is on its way already."""
        first, end = stretch.first_seq, stretch.first_seq + stretch.length
        queue = self._queue
        in_turn = queue[-1][1] <= first if queue else not self.count
        if in_turn and stretch.length > _FEW and stretch.attempt == FIRST_ATTEMPT:
            queue.append((first, end, sent_ns))
            self.count += stretch.length
            return
        if queue:
            self._leave_queue()
        self._reach(first, end)
        self._put(first, end, sent_ns)
        self.count += stretch.length
        if stretch.attempt != FIRST_ATTEMPT:
            self._again.update(dict.fromkeys(range(first, end), (stretch.attempt, stretch.first_sent_ns)))

    def take(self, seqs: range | Int64s) -> SettledRange | SettledRanges | None:
        """Take these out, as far as they are here; sequence numbers in any order."""
        if self._queue:
            if isinstance(seqs, range) and seqs.start <= self._queue[0][0]:
                return self._take_first(seqs.stop)
            self._leave_queue()
        if len(seqs) == 1:
            return self._take_one(int(seqs[0]))
        if isinstance(seqs, range):
            return self._take_range(max(seqs.start, self._low), min(seqs.stop, self._high))
        if np.count_nonzero(seqs[1:] <= seqs[:-1]):
            seqs = np.unique(seqs)
        seqs = seqs[(seqs >= self._low) & (seqs < self._high)]
        slots = seqs & self._mask
        sent_ns = self._view[slots]
        self._view[slots] = _NOT_HERE
        return self._landed(seqs, sent_ns)

    def take_unsettled(self) -> list[Stretch]:
        """The connection is gone: what was on its way, in order, as it must be sent again."""
        if self._queue:
            self._leave_queue()
        sent_ns = self._get(self._low, self._high)
        here = np.flatnonzero(sent_ns != _NOT_HERE)
        seqs, first_sent_ns, attempts = here + self._low, sent_ns[here], np.full(len(here), FIRST_ATTEMPT)
        for index, seq in enumerate(seqs.tolist() if self._again else ()):
            if seq in self._again:
                attempts[index], first_sent_ns[index] = self._again[seq]
        self._put(self._low, self._high, _NOT_HERE)
        self._low, self.count = self._high, 0
        self._again.clear()
        alike = (np.diff(seqs) == 1) & (np.diff(attempts) == 0) & (np.diff(first_sent_ns) == 0)
        begins = np.append(0, np.flatnonzero(~alike) + 1) if len(seqs) else np.empty(0, np.int64)
        lengths = np.diff(np.append(begins, len(seqs)))
        columns = (seqs[begins], lengths, attempts[begins] + 1, first_sent_ns[begins])
        return [Stretch(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _take_first(self, end: int) -> SettledRange | SettledRanges | None:
        """What is in the queue up to here."""
        queue, landed = self._queue, []
        while queue and queue[0][0] < end:
            first, stop, sent_ns = queue.popleft()
            if stop > end:
                queue.appendleft((end, stop, sent_ns))
                stop = end
            self.count -= stop - first
            landed.append((first, stop - 1, sent_ns))
        if len(landed) <= 1:
            return SettledRange(*landed[0]) if landed else None
        firsts, lasts, sent = np.array(landed, np.int64).T
        return SettledRanges(int((lasts - firsts).sum()) + len(landed), firsts, lasts, sent)

    def _leave_queue(self) -> None:
        """Something came out of turn."""
        stretches = list(self._queue)
        self._queue.clear()
        self.count = 0
        for first, end, sent_ns in stretches:
            self._reach(first, end)
            self._put(first, end, sent_ns)
            self.count += end - first

    def _take_one(self, seq: int) -> SettledRange | None:
        sent_ns = self._sent[seq & self._mask] if self._low <= seq < self._high else _NOT_HERE
        if sent_ns == _NOT_HERE:
            return None
        self._sent[seq & self._mask] = _NOT_HERE
        if seq == self._low:
            self._low = seq + 1
        self.count -= 1
        return SettledRange(seq, seq, sent_ns)

    def _take_range(self, first: int, end: int) -> SettledRange | SettledRanges | None:
        if first >= end:
            return None
        sent_ns = self._get(first, end)
        self._put(first, end, _NOT_HERE)
        if first == self._low:
            self._low = end
        if sent_ns[0] != _NOT_HERE and not np.count_nonzero(sent_ns != sent_ns[0]):
            self.count -= end - first
            return SettledRange(first, end - 1, int(sent_ns[0]))
        return self._landed(np.arange(first, end), sent_ns)

    def _landed(self, seqs: Int64s, sent_ns: Int64s) -> SettledRange | SettledRanges | None:
        here = sent_ns != _NOT_HERE
        if np.count_nonzero(here) < len(here):
            seqs, sent_ns = seqs[here], sent_ns[here]
        if not len(seqs):
            return None
        self.count -= len(seqs)
        breaks = ((seqs[1:] - seqs[:-1] != 1) | (sent_ns[1:] != sent_ns[:-1])).nonzero()[0]
        firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(seqs) - 1)
        if len(firsts) == 1:
            return SettledRange(int(seqs[0]), int(seqs[-1]), int(sent_ns[0]))
        return SettledRanges(len(seqs), seqs[firsts], seqs[lasts], sent_ns[firsts])

    # -- the ring ------------------------------------------------------------------------------------------------

    def _make(self, slots: int) -> None:
        self._sent = array("q", (_NOT_HERE,)) * slots
        self._view: Int64s = np.frombuffer(self._sent, np.int64)
        self._mask = slots - 1

    def _get(self, first: int, end: int) -> Int64s:
        """The send times of these, copied."""
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

    def _reach(self, first: int, end: int) -> None:
        """See that the ring spans these as well."""
        if not self.count:
            self._low = self._high = first
        low, high = min(first, self._low), max(end, self._high)
        if high - low > len(self._view):
            # What landed long ago need not be spanned. Half of the ring stays free, so that this is not needed often.
            here = np.flatnonzero(self._get(self._low, self._high) != _NOT_HERE)
            low = min(first, self._low + int(here[0]) if len(here) else high)
            slots = len(self._view)
            while high - low > slots // 2:
                slots *= 2
            self._move(low, slots)
        self._low, self._high = low, high

    def _move(self, low: int, slots: int) -> None:
        """To a ring of so many slots, where nothing is below `low` any more."""
        if slots == len(self._view):
            return
        spanned = range(max(low, self._low), self._high)
        sent_ns = self._get(spanned.start, spanned.stop)
        self._make(slots)
        self._view[np.arange(spanned.start, spanned.stop) & self._mask] = sent_ns
