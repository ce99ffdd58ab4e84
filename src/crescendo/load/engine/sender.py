"""Which messages does one connection send next?

Those that are due and were never sent, in order; before them those that were on their way when the connection was
lost; and with a bounded buffer only as many as fit, because the rest is shed. Sends nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from crescendo.load.assignment import Quota
from crescendo.load.engine.echo import EchoReplies
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, InFlight, Int64s, SettledRange, SettledRanges, Stretch
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.engine.statistics import Stopwatch
from crescendo.load.protocols.interfaces import LoadChannel, SendChannel, SettledMessages
from crescendo.model.pacer import Pacer
from crescendo.model.workload import Group, PingPongMode, Settle
from crescendo.wire.stamp import MAGIC, stamp_words

FEW = 8
"""Up to this many messages are written one by one: setting up arrays would cost more than all the rest."""
PATIENCE_NS = 1_000_000
"""Longer than this after its last message a sender lets no message wait for others."""

_WORTH_SENDING = 4  # a batch of this part of what is under way
_AHEAD = 64  # due times are asked for in bulk: one at a time, the asking would cost more than the sending


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
        self.line = ReconnectingChannel(channel, redial, seed=number)
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
        self.dressed: object = None  # the batch whose stamps say whose they are
        self.first_bodies: list[memoryview] = []  # of that batch
        self.columns: tuple[Int64s, Int64s] = np.empty(0, np.int64), np.empty((0, 2), np.int64)  # numbers, both times
        self.replies = replies
        self.flights = InFlight()
        self._batched_before = 0  # on connections that are gone
        self._again: deque[Stretch] = deque()  # before anything new
        self._waiting = 0  # messages in it
        self._due_ns: list[int] = []  # of the messages from _due_from on
        self._due_from = 0
        self._allowed = 0  # that many may leave before `room` must be asked again
        self._window = group.window
        self._ping_pong = replies is not None and isinstance(group.mode, PingPongMode)
        self._alike = pacer.bounded and group.size.is_fixed and group.buffer is None and replies is None

    @property
    def channel(self) -> SendChannel:
        return self.line.channel

    @property
    def channels(self) -> Iterator[LoadChannel]:
        """All that it holds: its own, and the one on which answers come."""
        yield self.channel
        if self.replies is not None:
            yield self.replies.channel

    def due(self, elapsed_ns: int) -> int:
        """How many messages wait to be sent."""
        return max(self._due_by(elapsed_ns) - self.next_seq, 0) + self._waiting

    def _due_by(self, elapsed_ns: int) -> int:
        following = self.next_seq
        if self.pacer.bounded:  # mostly none or one is due, and that needs no arithmetic
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
        """The intended offset of a message, usually one of those that come next."""
        place = seq - self._due_from
        if not 0 <= place < len(self._due_ns):
            self._due_ns = self.pacer.due_ns(np.arange(seq, seq + _AHEAD, dtype=np.int64)).tolist()
            self._due_from, place = seq, 0
        return self._due_ns[place]

    @property
    def is_predictable(self) -> bool:
        """Whether it is known what its next messages look like and when they leave."""
        return self._alike and not self._again and not self.blocked.running

    def departed(self, sent_ns: list[int]) -> None:
        """The next messages have left, one at each of these times."""
        first = self.next_seq
        self.next_seq += len(sent_ns)
        self.sent += len(sent_ns)
        self.last_sent_ns = sent_ns[-1]
        self._allowed = 0
        if self.awaits_outcomes:
            for seq, at_ns in enumerate(sent_ns, first):
                self.flights.add_one(seq, at_ns)

    def stamp_constants(self, count: int) -> None:
        """Write what all stamps of a connection share into as many of its batch, if that is a new one."""
        channel = self.channel
        if channel.stamps is self.dressed:
            return
        stamps = channel.stamps[:count]
        stamps["magic"] = MAGIC
        stamps["sender"] = self.number
        stamps["tag"] = self.tag
        self.dressed = channel.stamps
        words = stamp_words(channel.bodies)
        self.columns = words[:, 1], words[:, 2:]
        self.first_bodies = [body.data for body in channel.bodies[:FEW]]

    @property
    def in_flight(self) -> int:
        """How many have left and are not settled."""
        return self.flights.count

    @property
    def batched(self) -> int:
        """Messages that left by the batch path."""
        return self._batched_before + self.channel.batched

    @property
    def exhausted(self) -> bool:
        return self.line.lost or (self.next_seq >= self.total and not self._waiting)

    def grant(self, count: int) -> int:
        """How many of these messages may leave now. While nothing was read or held up, an earlier answer holds on."""
        channel = self.line.channel
        if self._allowed < count or channel.closed is not None:
            self._allowed = self.room()
        granted = min(count, self._allowed)
        self._allowed -= granted
        return granted

    def pump(self) -> list[SettledMessages]:
        """Read what arrived; it may have given or taken leave to send."""
        self._allowed = 0
        return self.line.channel.pump()

    def send(self, first_seq: int, count: int) -> None:
        """Let the first `count` messages of the batch go."""
        if not self.line.channel.send(first_seq, count):
            self._allowed = 0  # the batch must not be touched before its bytes have left

    def room(self) -> int:
        """How many messages may leave now, by the system's leave and by our own window."""
        room = self.channel.room()
        if self._ping_pong and self.replies is not None:
            return min(room, 1 - (self.sent - self.replies.count))
        return room if self._window is None else min(room, self._window - self.in_flight)

    def too_few(self, granted: int, now_ns: int) -> bool:
        """Whether so few messages had better wait until more may leave: what is under way brings more leave soon.

        A system that gives leave in small pieces would be sent small pieces, settle them in small pieces, and so on.
        """
        enough = self.flights.count // _WORTH_SENDING
        return self.group.unpaced and granted < enough and now_ns - self.last_sent_ns < PATIENCE_NS

    def take_back(self, granted: int) -> None:
        """These do not leave after all."""
        self._allowed += granted

    def over(self) -> bool:
        """Whether everything has left and has been settled, where anybody settles."""
        if self.line.lost:
            return True
        answered = self.replies is None or self.replies.count >= self.sent
        return answered and not self.in_flight and not self._waiting and self.channel.flush()

    def next_stretch(self, limit: int) -> Stretch:
        """At most `limit` messages, of those that are due."""
        if self._again:
            stretch = self._again.popleft()
            if stretch.length > limit:
                rest = Stretch(
                    stretch.first_seq + limit, stretch.length - limit, stretch.attempt, stretch.first_sent_ns
                )  # fmt: skip
                self._again.appendleft(rest)
                stretch = stretch._replace(length=limit)
            self._waiting -= stretch.length
            return stretch
        first = self.next_seq
        self.next_seq += limit
        return Stretch(first, limit)

    def put_back(self, stretch: Stretch) -> None:
        """There was no room for these after all."""
        self._again.appendleft(stretch)
        self._waiting += stretch.length

    def cut_to_buffer(self, elapsed_ns: int, room: int) -> range:
        """Put what is due and cannot leave into the buffer; what does not fit either is shed: these numbers."""
        buffer = self.group.buffer
        due = self._due_by(elapsed_ns)
        if buffer is None or due <= self.next_seq:
            return range(0)
        kept = max(min(due - self.next_seq, room + buffer - self._waiting), 0)
        if kept:
            self._again.append(Stretch(self.next_seq, kept))
            self._waiting += kept
        shed = range(self.next_seq + kept, due)
        self.next_seq = due
        self.shed += len(shed)
        return shed

    def mark_sent(self, stretch: Stretch, sent_ns: int) -> None:
        """These have left."""
        self.sent += stretch.length if stretch.attempt == FIRST_ATTEMPT else 0
        self.last_sent_ns = sent_ns
        if self.awaits_outcomes:
            self.flights.add(stretch, sent_ns)

    def settled(self, seqs: range | Int64s) -> SettledRange | SettledRanges | None:
        """Take these messages out of what is unsettled."""
        return self.flights.take(seqs)

    def interrupted(self) -> int:
        """The connection is gone: what was unsettled will be sent again, oldest first. How many."""
        self._allowed = 0
        self._batched_before, self.channel.batched = self.batched, 0
        count = self.in_flight
        self._again.extendleft(reversed(self.flights.take_unsettled()))
        self._waiting += count
        return count
