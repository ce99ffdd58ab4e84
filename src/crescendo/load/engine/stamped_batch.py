"""How do the messages of one connection get from its schedule into its socket?

Either fresh: messages that are due are stamped and sent together, now. Or prepared: all but the send time of a message
is known before it is due, so the next messages are numbered and stamped ahead of time and wait in the batch; when one
is due, its send time is written into it and it is sent. That costs little more than its `send`.

Only messages of one size that are sent at most a few at a time are prepared, on a connection that has room for them and
nothing to resend. Prepared messages take no sequence number and no credit before they are sent, and are accounted for
many at once: call `commit` before asking how far the connection has come. Whatever is prepared and not sent can be
discarded at any time; it will be sent fresh.
"""

import struct
import time
from bisect import bisect_left

import numpy as np

from crescendo.load.engine.batch_stamps import BatchStamps
from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.engine.send_schedule import SendSchedule
from crescendo.load.engine.send_window import SendWindow
from crescendo.load.engine.sent_log import Interruption, SentLog, interruption_ns
from crescendo.load.protocols.interfaces import SendChannel
from crescendo.model.arrays import Int64s
from crescendo.model.profile import phase_of

QUANTUM_NS = 250_000
"""The shortest wait between two rounds of sending: a shorter one costs more CPU than the lateness is worth."""

SMALL_BATCH = 8
"""Up to this many messages are stamped one by one: setting up arrays would cost more than everything else."""

MAX_PREPARED = 64  # messages, give or take a few
MIN_PREPARED = 8  # below this, preparing costs more than it saves
MAX_SPAN_NS = 1_000_000_000  # a sent message is recorded at most this much later
_SENT_NS = struct.Struct(">q")
_SENT_NS_AT = 24


class StampedBatch:
    """The batch of one connection."""

    __slots__ = (
        "_bodies", "_channel", "_committed", "_connection", "_due_ns", "_first_seq", "_frames", "_granted",
        "_intended_ns", "_interruptions", "_log", "_may_prepare", "_octets", "_phase_offset", "_retry_seq", "_schedule",
        "_sent", "_sent_ns", "_size", "_stamps", "_window", "prepared",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        tag: int,
        size: int | None,
        may_prepare: bool,
        connection: ReconnectingChannel[SendChannel],
        schedule: SendSchedule,
        window: SendWindow,
        log: SentLog,
    ) -> None:
        """`size` is that of every message; None if they differ."""
        self._connection = connection
        self._channel = connection.channel
        self._schedule = schedule
        self._window = window
        self._log = log
        self._size = size
        self._may_prepare = may_prepare and size is not None
        single = MAX_PREPARED + MIN_PREPARED if self._may_prepare else SMALL_BATCH
        self._stamps = BatchStamps(number, tag, single)
        self._phase_offset = int(phase_of(number) * MAX_PREPARED)
        # Of the prepared messages: how many there are, may be sent, were sent, and are accounted for.
        self.prepared = self._granted = self._sent = self._committed = 0
        self._first_seq = 0
        self._retry_seq = 0  # before this message, preparing is not worthwhile
        self._intended_ns: Int64s = np.empty(0, np.int64)
        self._due_ns: list[int] = []  # the same, and that of the message after the last one, or 0
        self._sent_ns: list[int] = []
        self._interruptions: list[Interruption] = []
        self._octets = memoryview(b"")
        self._frames: list[memoryview] = []
        self._bodies: list[memoryview] = []

    # -- fresh ---------------------------------------------------------------------------------------------------

    def send(self, seq_range: SeqRange, size: int) -> None:
        """Send these messages now. Nothing may be prepared."""
        channel, count = self._connection.channel, seq_range.length
        if channel.stamps is not self._stamps.attached:
            self._attach(channel, count if self._size is None else channel.capacity)
        if count <= SMALL_BATCH:
            self._send_few(channel, seq_range, size)
        else:
            self._send_many(channel, seq_range, size)

    def _send_few(self, channel: SendChannel, seq_range: SeqRange, size: int) -> None:
        schedule, first = self._schedule, seq_range.first_seq
        scheduled = [schedule.due_ns(first + index) for index in range(seq_range.length)] if schedule.bounded else None
        sent_ns = time.monotonic_ns()
        intended_ns = scheduled or [seq_range.first_sent_ns or sent_ns] * seq_range.length
        self._stamps.stamp_few(first, intended_ns, sent_ns)
        written_ns = self._write(channel, seq_range, sent_ns)
        if scheduled:
            self._log.add_few(seq_range, scheduled, sent_ns, size, written_ns)
        else:
            self._log.add_unscheduled(seq_range, sent_ns, size, written_ns, self._window.room_ns)

    def _send_many(self, channel: SendChannel, seq_range: SeqRange, size: int) -> None:
        first, count = seq_range.first_seq, seq_range.length
        seqs = np.arange(first, first + count, dtype=np.int64)
        scheduled = self._schedule.intended_ns(seqs) if self._schedule.bounded else None
        sent_ns = time.monotonic_ns()
        self._stamps.stamp_sent(seqs, (seq_range.first_sent_ns or None) if scheduled is None else scheduled, sent_ns)
        written_ns = self._write(channel, seq_range, sent_ns)
        if scheduled is None:
            self._log.add_unscheduled(seq_range, sent_ns, size, written_ns, self._window.room_ns)
            return
        interrupted_ns = interruption_ns(sent_ns, written_ns)
        self._log.add(seq_range, scheduled, sent_ns, size, [(0, count, interrupted_ns)] if interrupted_ns else None)

    def _write(self, channel: SendChannel, seq_range: SeqRange, sent_ns: int) -> int:
        """Returns when the write ended."""
        if not channel.send(seq_range.first_seq, seq_range.length):
            self._window.revoke()  # the batch must not be changed before its bytes are written
        written_ns = time.monotonic_ns()
        self._window.add(seq_range, sent_ns)
        return written_ns

    # -- prepared ------------------------------------------------------------------------------------------------

    def send_due(self, now_ns: int) -> int:
        """Send the prepared messages that are due. Returns when the next one is, or 0 if only `send` can go on."""
        if self._sent >= self._granted and not self.renew(now_ns):
            return 0
        sent, due_ns = self._sent, self._due_ns
        if due_ns[sent] > now_ns:
            return due_ns[sent]  # what this wake-up was for was sent fresh
        if self._channel.closed is not None:
            return 0
        end = sent + 1
        while due_ns[end] <= now_ns and end < self._granted:
            end += 1
        sent_ns = time.monotonic_ns()
        if end == sent + 1:
            _SENT_NS.pack_into(self._bodies[sent], _SENT_NS_AT, sent_ns)
            self._sent_ns.append(sent_ns)
            octets = self._frames[sent]
        else:
            for body in self._bodies[sent:end]:
                _SENT_NS.pack_into(body, _SENT_NS_AT, sent_ns)
            self._sent_ns += [sent_ns] * (end - sent)
            length = len(self._frames[sent])
            octets = self._octets[sent * length : end * length]
        self._sent = end
        if not self._channel.write(octets):
            self._granted = end  # ask the channel again before sending more
        return due_ns[end]

    @property
    def used_up(self) -> bool:
        return self._sent == self.prepared

    def renew(self, now_ns: int) -> bool:
        """Ask for room for what is prepared, and prepare more when it is used up. Returns whether any may be sent."""
        self.commit()
        room = self._window.room()
        if self._sent == self.prepared:
            self._prepare(now_ns, room)
        self._granted = min(self._sent + max(room, 0), self.prepared)
        return self._granted > self._sent

    def commit(self, *, revoke: bool = False) -> None:
        """Account for the prepared messages that were sent. `revoke`: send no more before the next `renew`."""
        if revoke:
            self._granted = self._sent
        if self._sent == self._committed:
            return
        sent_ns, first_seq = self._sent_ns[self._committed :], self._first_seq + self._committed
        self._channel.mark_prepared_sent(first_seq, sent_ns)
        self._schedule.advance(len(sent_ns))
        self._window.add_each(first_seq, sent_ns)
        self._committed = self._sent
        if self._sent == self.prepared:
            self._log_prepared()

    def discard(self) -> None:
        """Drop what is prepared and not sent."""
        self.commit()
        if self._sent_ns:
            self._log_prepared()
        self.prepared = self._granted = self._sent = self._committed = 0

    @property
    def last_unlogged_ns(self) -> int:
        """The send time of the last prepared message, if it was sent and is not logged yet; else 0."""
        return self._sent_ns[-1] if self._sent_ns else 0

    def interrupted(self, sent_ns: int, duration_ns: int) -> None:
        """The write of the last prepared messages, which have this send time, was interrupted."""
        end = len(self._sent_ns)
        self._interruptions.append((end - self._sent_ns.count(sent_ns), end, duration_ns))

    def _log_prepared(self) -> None:
        sent_ns, self._sent_ns = np.array(self._sent_ns, np.int64), []
        seq_range = SeqRange(self._first_seq, len(sent_ns))
        self._log.add(seq_range, self._intended_ns[: len(sent_ns)], sent_ns, self._size or 0, self._interruptions)
        self._interruptions = []

    def _prepare(self, now_ns: int, room: int) -> None:
        schedule, channel = self._schedule, self._connection.channel
        self.prepared = self._granted = self._sent = self._committed = 0
        first = schedule.next_seq
        # Staggered by connection: those of one rate would otherwise all prepare at the same time.
        limit = MAX_PREPARED - (first + self._phase_offset) % MAX_PREPARED
        limit = min(limit if limit >= MIN_PREPARED else limit + MAX_PREPARED, room, schedule.total - first)
        if limit < MIN_PREPARED or first < self._retry_seq or not self._is_predictable:
            return
        self._retry_seq = first + MAX_PREPARED  # reset below if preparing succeeds; trying costs time
        seqs = np.arange(first, min(first + limit + 1, schedule.total), dtype=np.int64)
        intended_ns = schedule.intended_ns(seqs)
        due_ns = intended_ns.tolist()
        count = bisect_left(due_ns, due_ns[0] + MAX_SPAN_NS, hi=limit)
        if count < MIN_PREPARED or due_ns[MIN_PREPARED - 1] <= now_ns + QUANTUM_NS:
            return
        octets = channel.prepare(count)
        if octets is None:
            return
        if channel.stamps is not self._stamps.attached:
            self._attach(channel, channel.capacity)
        if len(self._frames) < count:
            length = len(octets) // count
            self._frames = [octets[row * length : (row + 1) * length] for row in range(count)]
        self._stamps.stamp(seqs[:count], intended_ns[:count])
        due_ns.append(0)  # no message follows the last one
        self._octets, self._first_seq, self._intended_ns, self._due_ns = octets, first, intended_ns, due_ns
        self.prepared, self._retry_seq = count, 0

    @property
    def _is_predictable(self) -> bool:
        """Whether the content and the due times of the next messages are known, and they may be sent when due."""
        return self._may_prepare and self._schedule.is_plain and not self._window.is_waiting

    def _attach(self, channel: SendChannel, count: int) -> None:
        """The channel has another batch: the first one, one of another size, or that of a new connection."""
        self._stamps.attach(channel, count)
        self._channel, self._frames, self._bodies = channel, [], self._stamps.bodies
