"""How many messages may one connection send now, and what is in flight?

The system's credit, the room in the socket and our own window decide. While they leave no room the connection is held,
and what ends the hold is noted with the time at which it became readable. Sends nothing and reads no clock.
"""

from crescendo.load.engine.echo import EchoReplies
from crescendo.load.engine.held_time import HeldTime
from crescendo.load.engine.in_flight import FIRST_ATTEMPT, InFlight, SeqRange, SettledRange, SettledRanges
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.protocols.interfaces import SendChannel
from crescendo.model.arrays import Int64s
from crescendo.model.workload import Group, PingPongMode, Settle

MAX_CREDIT_WAIT_NS = 1_000_000
"""Once this long has passed since its last message, a sender no longer waits for more credit before it sends."""

_MIN_BATCH_DIVISOR = 4  # a batch is large enough at this fraction of the messages in flight


class SendWindow:
    """Credit, messages in flight, and holds of one connection."""

    def __init__(
        self, connection: ReconnectingChannel[SendChannel], group: Group, replies: EchoReplies | None = None
    ) -> None:
        self.held = HeldTime()
        self.is_waiting = False  # an event on its socket may let it go on
        self.room_ns = 0  # when the last hold ended
        self.sent = 0  # messages, each counted once
        self.last_sent_ns = 0
        self._readable_ns: int | None = None  # when that which may end the hold became readable
        self._in_flight = InFlight()
        self._connection = connection
        self._size = group.window
        self._unpaced = group.unpaced
        self._awaits_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self._answers = replies if isinstance(group.mode, PingPongMode) else None
        self._credit = 0  # messages that may be sent before `room` must be called again

    @property
    def in_flight(self) -> int:
        """How many messages were sent and are not settled."""
        return self._in_flight.count

    # -- room ----------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many messages may be sent now, by the system's credit and by our own window."""
        room = self._connection.channel.room()
        if self._answers is not None:
            return min(room, 1 - (self.sent - self._answers.count))
        return room if self._size is None else min(room, self._size - self._in_flight.count)

    def grant(self, count: int) -> int:
        """How many of these messages may be sent now. `room` is asked again only after a read or a partial write."""
        if self._credit < count or self._connection.channel.closed is not None:
            self._credit = self.room()
        return min(count, self._credit)

    def revoke(self) -> None:
        """Ask again before anything is sent: a read may have changed the credit, or bytes are still to be written."""
        self._credit = 0

    def should_wait_for_credit(self, granted: int, now_ns: int) -> bool:
        """Whether to hold so small a batch back: settlements in flight will free more credit soon.

        A system that grants credit in small amounts would get small batches, settle them in small batches, and so on.
        """
        enough = self._in_flight.count // _MIN_BATCH_DIVISOR
        return self._unpaced and granted < enough and now_ns - self.last_sent_ns < MAX_CREDIT_WAIT_NS

    # -- holds ---------------------------------------------------------------------------------------------------

    def block(self, now_ns: int) -> None:
        """There is no room."""
        self._readable_ns = None
        self.is_waiting = True
        self.held.begin(now_ns)

    @property
    def is_held(self) -> bool:
        return self.held.since_ns is not None

    def became_readable(self, t_ns: int | None) -> None:
        """Something that may end the hold became readable at this time; None if the time is unknown."""
        self._readable_ns = t_ns

    def unblock(self, looked_ns: int) -> None:
        """There is room. If it is unknown since when, it counts from the last time we looked in vain."""
        if self.held.since_ns is not None:
            self.room_ns = looked_ns if self._readable_ns is None else self._readable_ns
            self.held.end(self.room_ns)
        self._readable_ns, self.is_waiting = None, False

    def wait(self) -> None:
        """There is room, and we wait for more: our own decision, so this is not a hold."""
        self.is_waiting = True

    # -- in flight -----------------------------------------------------------------------------------------------

    def add(self, seq_range: SeqRange, sent_ns: int) -> None:
        """These messages were sent together."""
        self._credit -= seq_range.length
        self.sent += seq_range.length if seq_range.attempt == FIRST_ATTEMPT else 0
        self.last_sent_ns = sent_ns
        if self._awaits_outcomes:
            self._in_flight.add(seq_range, sent_ns)

    def add_each(self, first_seq: int, sent_ns: list[int]) -> None:
        """Messages were sent for the first time, one at each of these times."""
        self._credit = 0
        self.sent += len(sent_ns)
        self.last_sent_ns = sent_ns[-1]
        if self._awaits_outcomes:
            for seq, at_ns in enumerate(sent_ns, first_seq):
                self._in_flight.add_one(seq, at_ns)

    def settle(self, seqs: range | Int64s) -> SettledRange | SettledRanges | None:
        """Remove these messages from those in flight."""
        return self._in_flight.take(seqs)

    def take_unsettled(self) -> list[SeqRange]:
        """The connection is lost: what was in flight is to be sent again, oldest first."""
        self._credit = 0
        return self._in_flight.take_unsettled()
