"""What was sent, when, and how much of its delay was our own?

The one place where sent messages become rows, whichever way they were sent. Called after they were written: a recorder
that waits for its disk delays the next messages, which shows in them. The own delay of a scheduled message is the time
from its intended to its send time, less what the other side held us back; only where that differs from the plain
difference there is a row. Without a schedule it is the time for which a batch could have been sent and was not.
"""

import numpy as np

from crescendo.load.engine.held_time import HeldTime
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, SeqRange
from crescendo.load.engine.stalls import STALL_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.model.arrays import Int64s
from crescendo.record.schema import OWN_DELAY, SENT
from crescendo.record.writer import RowSink

Interruption = tuple[int, int, int]
"""Messages from a first index up to an end, and for how long their write was interrupted after their send time."""


class SentLog:
    """Rows about the sent messages of one connection."""

    def __init__(self, number: int, log: RowSink, held: HeldTime, own_delay: Distribution) -> None:
        self._number = number
        self._log = log
        self._held = held
        self._own_delay = own_delay  # of messages with a schedule
        self._free_ns = 0  # when the last write ended

    def start(self, start_ns: int) -> None:
        self._free_ns = start_ns

    def add(
        self,
        seq_range: SeqRange,
        intended_ns: Int64s,
        sent_ns: int | Int64s,
        size: int | Int64s,
        interruptions: list[Interruption] | None = None,
    ) -> None:
        """Scheduled messages were sent, together or one by one."""
        first, count = seq_range.first_seq, seq_range.length
        self._log.append(
            SENT, count, self._number, range(first, first + count), seq_range.attempt, intended_ns, sent_ns, size
        )  # fmt: skip
        if seq_range.attempt != FIRST_ATTEMPT:
            return
        own_ns = sent_ns - intended_ns
        if interruptions or int(intended_ns[0]) < self._held.ended_ns:
            held_ns = self._held.within(intended_ns, sent_ns)
            own_ns -= held_ns
            differs = held_ns > 0
            for begin, end, duration_ns in interruptions or ():
                own_ns[begin:end] += duration_ns
                differs[begin:end] = True
            self._add_ranges(first, own_ns, np.flatnonzero(differs))
        self._own_delay.add(own_ns)

    def add_few(self, seq_range: SeqRange, intended_ns: list[int], sent_ns: int, size: int, written_ns: int) -> None:
        """The same, one by one, for messages that were sent together."""
        append_one, number, attempt = self._log.append_one, self._number, seq_range.attempt
        interrupted_ns = interruption_ns(sent_ns, written_ns)
        for seq, due_ns in enumerate(intended_ns, seq_range.first_seq):
            append_one(SENT, number, seq, attempt, due_ns, sent_ns, size)
            if attempt != FIRST_ATTEMPT:
                continue
            own_ns = sent_ns - due_ns
            if interrupted_ns or due_ns < self._held.ended_ns:
                held_ns = self._held.within_one(due_ns, sent_ns)
                own_ns += interrupted_ns - held_ns
                if interrupted_ns or held_ns:
                    append_one(OWN_DELAY, number, seq, seq, own_ns)
            self._own_delay.add_one(own_ns)

    def add_unscheduled(self, seq_range: SeqRange, sent_ns: int, size: int, written_ns: int, room_ns: int) -> None:
        """Messages without due times were sent together; since `room_ns` there was room for them."""
        first, count, intended_ns = seq_range.first_seq, seq_range.length, seq_range.first_sent_ns or sent_ns
        free_ns, self._free_ns = max(self._free_ns, room_ns), written_ns
        if count == 1:
            self._log.append_one(SENT, self._number, first, seq_range.attempt, intended_ns, sent_ns, size)
        else:
            self._log.append(
                SENT, count, self._number, range(first, first + count), seq_range.attempt, intended_ns, sent_ns, size
            )  # fmt: skip
        own_ns = sent_ns - free_ns
        if written_ns - sent_ns > STALL_NS:
            own_ns += written_ns - sent_ns
        if seq_range.attempt == FIRST_ATTEMPT and own_ns > 0:
            self._log.append_one(OWN_DELAY, self._number, first, first + count - 1, own_ns)

    def _add_ranges(self, first: int, own_ns: Int64s, indices: Int64s) -> None:
        """One row for each run of messages with the same own delay."""
        if not len(indices):
            return
        own_ns = own_ns[indices]
        breaks = np.flatnonzero((own_ns[1:] != own_ns[:-1]) | (indices[1:] - indices[:-1] != 1))
        begins, ends = np.append(0, breaks + 1), np.append(breaks, len(indices) - 1)
        self._log.append(
            OWN_DELAY, len(begins), self._number, indices[begins] + first, indices[ends] + first, own_ns[begins]
        )  # fmt: skip


def interruption_ns(sent_ns: int, written_ns: int) -> int:
    """For how long a write was interrupted. It never waits for the other side, so a long one was stopped or starved."""
    duration_ns = written_ns - sent_ns
    return duration_ns if duration_ns > STALL_NS else 0
