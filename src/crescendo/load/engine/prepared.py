"""Which work on a message can be done before it is due?

All but its send time: the schedule is known, so the next messages of a connection are numbered and stamped together,
and wait in the connection's batch. When one is due, its send time is written into it and it is sent; sent messages are
committed and recorded later, again many at once. A prepared message costs little more than its `send`.

This applies only to messages of one size that are sent at most a few at a time, on a connection that has room for them
and nothing to resend. Everything else takes the engine's ordinary path; prepared messages are dropped first
(`discard`). Call `commit` before asking a connection what it has sent.
"""

import struct
import time
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.sender import Sender
from crescendo.model.arrays import Int64s
from crescendo.model.profile import phase_of

MAX_PREPARED = 64  # messages, give or take a few
MIN_PREPARED = 8  # below this, preparing costs more than it saves
MAX_SPAN_NS = 1_000_000_000  # a sent message is recorded at most this much later
_SENT_NS = struct.Struct(">q")
_SENT_NS_AT = 24

Record = Callable[[Sender, SeqRange, Int64s, Int64s, int], None]
"""Called with sent messages: their sender, sequence numbers, intended and send times, and size."""


class PreparedMessages:
    """The messages of one connection that wait for their due time."""

    __slots__ = (
        "_bodies", "_channel", "_committed", "_count", "_due_ns", "_first_seq", "_frames", "_granted",
        "_intended_column", "_intended_ns", "_octets", "_phase_offset", "_quantum_ns", "_record", "_retry_seq",
        "_sender", "_sent", "_sent_ns", "_seq_column", "_stamps", "_t0_ns",
    )  # fmt: skip

    def __init__(self, sender: Sender, t0_ns: int, quantum_ns: int, record: Record) -> None:
        self._sender = sender
        self._channel = sender.channel
        self._t0_ns = t0_ns
        self._quantum_ns = quantum_ns
        self._record = record
        self._phase_offset = int(phase_of(sender.number) * MAX_PREPARED)
        self._count = 0  # messages that were prepared
        self._granted = 0  # how many of them may be sent
        self._sent = 0  # how many of them were sent
        self._committed = 0  # how many of them the sender has accounted for
        self._first_seq = 0
        self._retry_seq = 0  # before this message, preparing is not worthwhile
        self._intended_ns: Int64s = np.empty(0, np.int64)
        self._due_ns: list[int] = []  # the same, and that of the message after the last one, or 0
        self._sent_ns: list[int] = []
        self._octets = memoryview(b"")
        self._stamps: object = None  # the batch that the following are views of
        self._frames: list[memoryview] = []
        self._bodies: list[memoryview] = []
        self._seq_column = self._intended_column = self._intended_ns

    def send(self, now_ns: int) -> int:
        """Send what is due by now. Returns when the next one is due, or 0 when only the ordinary path can continue."""
        if self._sent >= self._granted and not self.renew(now_ns):
            return 0
        sent, due_ns = self._sent, self._due_ns
        if due_ns[sent] > now_ns:
            return due_ns[sent]  # the ordinary path has sent what this wake-up was for
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
        return self._sent == self._count

    def renew(self, now_ns: int) -> bool:
        """Ask for room for what is prepared, and prepare more when it is used up. Returns whether any may be sent."""
        self.commit()
        room = self._sender.room()
        if self._sent == self._count:
            self._prepare(now_ns, room)
        self._granted = min(self._sent + max(room, 0), self._count)
        return self._granted > self._sent

    def commit(self, *, revoke: bool = False) -> None:
        """Tell the sender and its channel what was sent. `revoke`: send no more before the next `renew`."""
        if revoke:
            self._granted = self._sent
        if self._sent == self._committed:
            return
        sent_ns, first_seq = self._sent_ns[self._committed :], self._first_seq + self._committed
        self._channel.mark_prepared_sent(first_seq, sent_ns)
        self._sender.mark_prepared_sent(sent_ns)
        self._committed = self._sent
        if self._sent == self._count:
            self._record_sent()

    def discard(self) -> None:
        """Drop what is prepared and not sent; the ordinary path will send it."""
        self.commit()
        if self._sent_ns:
            self._record_sent()
        self._count = self._granted = self._sent = self._committed = 0

    def _record_sent(self) -> None:
        sent_ns, self._sent_ns = np.array(self._sent_ns, np.int64), []
        seq_range = SeqRange(self._first_seq, len(sent_ns))
        self._record(self._sender, seq_range, self._intended_ns[: seq_range.length], sent_ns, self._sender.fixed_size)

    def _prepare(self, now_ns: int, room: int) -> None:
        sender = self._sender
        self._count = self._granted = self._sent = self._committed = 0
        first, channel = sender.next_seq, sender.channel
        # Staggered by connection: those of one rate would otherwise all prepare at the same time.
        limit = MAX_PREPARED - (first + self._phase_offset) % MAX_PREPARED
        limit = min(limit if limit >= MIN_PREPARED else limit + MAX_PREPARED, room, sender.total - first)
        if limit < MIN_PREPARED or first < self._retry_seq or not sender.is_predictable:
            return
        self._retry_seq = first + MAX_PREPARED  # reset below if preparing succeeds; trying costs time
        numbers = np.arange(first, min(first + limit + 1, sender.total), dtype=np.int64)
        intended_ns = sender.pacer.due_ns(numbers) + self._t0_ns
        due_ns = intended_ns.tolist()
        count = bisect_left(due_ns, due_ns[0] + MAX_SPAN_NS, hi=limit)
        if count < MIN_PREPARED or due_ns[MIN_PREPARED - 1] <= now_ns + self._quantum_ns:
            return
        octets = channel.prepare(count)
        if octets is None:
            return
        if channel.stamps is not self._stamps:
            self._attach_batch()
        if len(self._frames) < count:
            length = len(octets) // count
            self._frames = [octets[row * length : (row + 1) * length] for row in range(count)]
        self._seq_column[:count] = numbers[:count]
        self._intended_column[:count] = intended_ns[:count]
        due_ns.append(0)  # no message follows the last one
        self._octets, self._first_seq, self._intended_ns, self._due_ns = octets, first, intended_ns, due_ns
        self._count, self._retry_seq = count, 0

    def _attach_batch(self) -> None:
        """The channel has another batch: the first one, or that of a new connection."""
        self._channel = channel = self._sender.channel
        self._sender.stamp_constants(channel.capacity)
        self._stamps, self._frames = channel.stamps, []
        self._seq_column, self._intended_column = channel.stamps["seq"], channel.stamps["intended_ns"]
        self._bodies = [body.data for body in channel.bodies[: MAX_PREPARED + MIN_PREPARED]]
