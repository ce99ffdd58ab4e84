"""What of a message can be done before it is due?

All but its send time: the schedule is known, so the next messages of a connection are numbered and stamped together,
and wait in the connection's batch. When one is due, its send time is written into it and it leaves; what left is booked
and recorded later, again for many at once. A message that has waited so costs little more than its `send`.

Only where that is sound: messages of one size that leave at most a few at a time, on a connection that has room for
them and nothing to repeat. Everything else takes the engine's ordinary way, before which whatever waits here is dropped
(`discard`); and before anybody asks what a connection has sent, it is to be booked (`commit`).
"""

import struct
import time
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from crescendo.load.engine.in_flight import Stretch
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.statistics import Int64s
from crescendo.model.profile import phase_of

MOST = 64  # messages that wait, give or take a few
FEWEST = 8  # below this, preparing them costs more than it saves
LONGEST_NS = 1_000_000_000  # what leaves is recorded at most this much later
_SENT_NS = struct.Struct(">q")
_SENT_NS_AT = 24

Record = Callable[[Sender, Stretch, Int64s, Int64s, int], None]
"""Told of messages that have left: whose, which, their intended and their send times, and their size."""


class PreparedMessages:
    """The messages of one connection that wait for their time."""

    __slots__ = (
        "_at", "_bodies", "_booked", "_channel", "_count", "_due_ns", "_first_seq", "_frames", "_granted", "_intended",
        "_intended_ns", "_numbers", "_octets", "_quantum_ns", "_record", "_retry_seq", "_sender", "_sent_ns",
        "_stamps", "_t0_ns", "_turn",
    )  # fmt: skip

    def __init__(self, sender: Sender, t0_ns: int, quantum_ns: int, record: Record) -> None:
        self._sender = sender
        self._channel = sender.channel
        self._t0_ns = t0_ns
        self._quantum_ns = quantum_ns
        self._record = record
        self._turn = int(phase_of(sender.number) * MOST)
        self._count = 0  # messages that were prepared
        self._granted = 0  # up to here they may leave
        self._at = 0  # up to here they have left
        self._booked = 0  # up to here the sender knows
        self._first_seq = 0
        self._retry_seq = 0  # before this message there is no use in preparing
        self._intended_ns: Int64s = np.empty(0, np.int64)
        self._due_ns: list[int] = []  # the same, and that of the message behind the last one, or 0
        self._sent_ns: list[int] = []
        self._octets = memoryview(b"")
        self._stamps: object = None  # of the batch that the following are views of
        self._frames: list[memoryview] = []
        self._bodies: list[memoryview] = []
        self._numbers = self._intended = self._intended_ns

    def send(self, now_ns: int) -> int:
        """Send what is due by now. When the next one is due, or 0 where only the ordinary way leads on."""
        if self._at >= self._granted and not self.renew(now_ns):
            return 0
        at, due_ns = self._at, self._due_ns
        if due_ns[at] > now_ns:
            return due_ns[at]  # what was waited for has left the ordinary way
        if self._channel.closed is not None:
            return 0
        end = at + 1
        while due_ns[end] <= now_ns and end < self._granted:
            end += 1
        sent_ns = time.monotonic_ns()
        if end == at + 1:
            _SENT_NS.pack_into(self._bodies[at], _SENT_NS_AT, sent_ns)
            self._sent_ns.append(sent_ns)
            octets = self._frames[at]
        else:
            for body in self._bodies[at:end]:
                _SENT_NS.pack_into(body, _SENT_NS_AT, sent_ns)
            self._sent_ns += [sent_ns] * (end - at)
            length = len(self._frames[at])
            octets = self._octets[at * length : end * length]
        self._at = end
        if not self._channel.write(octets):
            self._granted = end  # no more before the channel was asked again
        return due_ns[end]

    @property
    def used_up(self) -> bool:
        return self._at == self._count

    def renew(self, now_ns: int) -> bool:
        """Ask for leave to send what is prepared, and prepare more when that is used up. Whether any may leave."""
        self.commit()
        room = self._sender.room()
        if self._at == self._count:
            self._prepare(now_ns, room)
        self._granted = min(self._at + max(room, 0), self._count)
        return self._granted > self._at

    def commit(self, *, revoke: bool = False) -> None:
        """Let the sender and its channel know what has left. `revoke` the leave to send more: it is to be renewed."""
        if revoke:
            self._granted = self._at
        if self._at == self._booked:
            return
        sent_ns, first_seq = self._sent_ns[self._booked :], self._first_seq + self._booked
        self._channel.departed(first_seq, sent_ns)
        self._sender.departed(sent_ns)
        self._booked = self._at
        if self._at == self._count:
            self._tell()

    def discard(self) -> None:
        """Forget what waits; it is going to leave in another way."""
        self.commit()
        if self._sent_ns:
            self._tell()
        self._count = self._granted = self._at = self._booked = 0

    def _tell(self) -> None:
        sent_ns, self._sent_ns = np.array(self._sent_ns, np.int64), []
        left = Stretch(self._first_seq, len(sent_ns))
        self._record(self._sender, left, self._intended_ns[: left.length], sent_ns, self._sender.fixed_size)

    def _prepare(self, now_ns: int, room: int) -> None:
        sender = self._sender
        self._count = self._granted = self._at = self._booked = 0
        first, channel = sender.next_seq, sender.channel
        # Up to where this connection's turn is over: those of one rate would otherwise all prepare at the same time.
        most = MOST - (first + self._turn) % MOST
        most = min(most if most >= FEWEST else most + MOST, room, sender.total - first)
        if most < FEWEST or first < self._retry_seq or not sender.is_predictable:
            return
        self._retry_seq = first + MOST  # unless it helps: finding out is not for free
        numbers = np.arange(first, min(first + most + 1, sender.total), dtype=np.int64)
        intended_ns = sender.pacer.due_ns(numbers) + self._t0_ns
        due_ns = intended_ns.tolist()
        count = bisect_left(due_ns, due_ns[0] + LONGEST_NS, hi=most)
        if count < FEWEST or due_ns[FEWEST - 1] <= now_ns + self._quantum_ns:
            return
        octets = channel.prepare(count)
        if octets is None:
            return
        if channel.stamps is not self._stamps:
            self._adopt()
        if len(self._frames) < count:
            length = len(octets) // count
            self._frames = [octets[row * length : (row + 1) * length] for row in range(count)]
        self._numbers[:count] = numbers[:count]
        self._intended[:count] = intended_ns[:count]
        due_ns.append(0)  # behind the last message of all
        self._octets, self._first_seq, self._intended_ns, self._due_ns = octets, first, intended_ns, due_ns
        self._count, self._retry_seq = count, 0

    def _adopt(self) -> None:
        """The batch is another one: of another connection, or the first."""
        self._channel = channel = self._sender.channel
        self._sender.stamp_constants(channel.capacity)
        self._stamps, self._frames = channel.stamps, []
        self._numbers, self._intended = channel.stamps["seq"], channel.stamps["intended_ns"]
        self._bodies = [body.data for body in channel.bodies[: MOST + FEWEST]]
