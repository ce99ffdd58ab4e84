"""What is the same about a connection in every protocol?

A socket and a sans-IO codec make a channel that never blocks. It writes what the codec wants to say, reads once when
asked and hands out what that meant, keeps signs of life going both ways, and ends with the system's own words. What the
words mean is left to the protocol.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from crescendo.load.protocols.interfaces import Octets, SettledMessages
from crescendo.load.protocols.sequence_map import SequenceMap
from crescendo.model.address import PORTS
from crescendo.model.errors import PeerError
from crescendo.model.workload import Group, Settle
from crescendo.net.tls import tls_of_url
from crescendo.net.transport import Transport, connect
from crescendo.wire.stamp import Stamps, stamps_of

_NS_PER_S = 10**9
_KEPT_BATCHES = 64
_IGNORED = memoryview(bytearray(1 << 16))  # what comes after our good-bye, which nobody reads
_SLOW_HOLDS_NS = 100_000_000  # a slow receiver takes no more than this much work at once


class ConnectionCodec(Protocol):
    """What every sans-IO connection of ours can do."""

    outgoing: deque[memoryview]

    def receive_buffer(self) -> memoryview: ...

    def received(self, count: int) -> None: ...

    def next_event(self) -> Any: ...


class BaseChannel(ABC):
    """One connection, either way."""

    _transport: Transport
    _connection: Any  # a Codec; each protocol knows its own

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        parts = urlsplit(url)
        self._tls = tls_of_url(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or PORTS[parts.scheme]
        self._path = unquote(parts.path.removeprefix("/"))
        self._user = None if parts.username is None else unquote(parts.username)
        self._password = unquote(parts.password or "")
        self._group = group
        self._batching = batching
        self._waits_for_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self._broken: str | None = None  # why nothing can be written any more
        self._left = False
        self.ready = False
        self.closed: str | None = None

    def _dial(self, codec: ConnectionCodec) -> None:
        self._connection = codec
        self._transport = connect(self._host, self._port, tls=self._tls)
        self._straight = self._transport.socket_send
        self._broken = None
        self.read_ns = self._written_ns = time.monotonic_ns()

    @property
    def pending(self) -> bool:
        return self._transport.pending

    def fileno(self) -> int:
        return self._transport.fileno()

    def flush(self) -> bool:
        outgoing = self._connection.outgoing
        if not outgoing or self.closed is not None:
            return True
        if self._broken is not None:
            outgoing.clear()
            return True
        try:
            done = self._transport.flush(outgoing)
        except PeerError as err:
            # Who closes while we write has often said why, and confirmed much: that is still to be read, and the
            # reading side is sure to notice the end.
            self._broken = str(err)
            outgoing.clear()
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        """Demand and give signs of life, at the pace that both sides agreed on."""
        if self.closed is not None:
            return
        patience_ns, pace_ns = self._idle_timeout_ns(), self._heartbeat_interval_ns()
        if patience_ns and now_ns - self.read_ns > patience_ns:
            self._fail(f"the system has been silent for {(now_ns - self.read_ns) / _NS_PER_S:.0f} s")
        elif pace_ns and now_ns - self._written_ns > pace_ns and not self._connection.outgoing:
            self._connection.heartbeat()
            self.flush()

    def start_close(self) -> None:
        if self.closed is None and not self._left:
            self._left = True
            self._send_close()
            self.flush()

    def peer_closed(self) -> bool:
        if self.closed is not None:
            return True
        try:
            self.flush()
            while count := self._transport.recv_into(_IGNORED):
                pass
        except PeerError:
            return True
        return count == 0

    def close(self) -> None:
        self.start_close()
        if self.closed is None:
            self.closed = "closed by us"
        self._transport.close()

    def _events(self, limit: int | None = None) -> Iterator[Any]:
        """Read once, at most so many bytes; yield what it meant and was not handled on the way."""
        if self.closed is not None:
            return
        try:
            more = True
            while more:
                count = self._transport.recv_into(self._connection.receive_buffer()[:limit])
                if count is None:
                    break
                if count == 0:
                    raise PeerError(self._hung_up())
                self.read_ns = time.monotonic_ns()
                self._connection.received(count)
                yield from self._meant()
                more = limit is None and self.closed is None and self.pending and not self._holds_back
        except PeerError as err:
            self._give_up(self._broken or str(err))
            return
        self.flush()

    def _meant(self) -> Iterator[Any]:
        while self.closed is None and not self._holds_back and (event := self._connection.next_event()) is not None:
            if not self._handle(event):
                yield event

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        self._transport.close()

    def _give_up(self, reason: str) -> None:
        """The connection broke, or what came over it makes no sense."""
        self._fail(reason)

    def _hung_up(self) -> str:
        return "the system closed the connection"

    @property
    def _lasting(self) -> str | None:
        """The name of the durable subscription that this connection holds. Only one connection may have it."""
        return self._group.target.options.subscription

    @property
    def _holds_back(self) -> bool:
        """Whether what arrives must wait, because nobody records it yet."""
        return False

    @property
    def _clear(self) -> bool:
        """Whether more may be written: attached, and everything before is on its way."""
        return self.ready and self._broken is None and not self._connection.outgoing

    @abstractmethod
    def _handle(self, event: Any) -> bool:
        """Take in an event that means the same in both directions; False for all others."""

    @abstractmethod
    def _send_close(self) -> None:
        """Say good-bye in the protocol's way."""

    @abstractmethod
    def _idle_timeout_ns(self) -> int:
        """How long the system may be silent; 0 when it never promised anything."""

    @abstractmethod
    def _heartbeat_interval_ns(self) -> int:
        """After how long a silence we say something; 0 when nobody waits for it."""


UNLIMITED = 2**31
"""The window of a connection on which nothing is settled."""


def prefetch_of(group: Group, default: int) -> int:
    """How many messages may be on their way to one receiver: as asked, few for a slow one, else many."""
    asked = group.target.options.prefetch
    if asked is not None or not group.consuming_ns:
        return asked or default
    return max(1, min(default, _SLOW_HOLDS_NS // group.consuming_ns))


class Batch(Protocol):
    """Equal-sized messages that leave together."""

    bodies: Octets
    capacity: int


class BaseSendChannel(BaseChannel):
    """What sending channels share: batches by size, and which message has which number on this connection."""

    _batch: Any  # a Batch; each protocol knows its own
    _answer: type | None = None  # to our good-bye, where the protocol has one; then who left may have to hang up

    def __init__(self, url: str, group: Group, **how: Any) -> None:
        super().__init__(url, group, **how)
        self._numbering = SequenceMap()
        self._batches: dict[int, Any] = {}
        self._size = int(group.size)
        self.batched = 0

    @property
    def _lasting(self) -> str | None:
        return None  # who sends to a topic subscribes to nothing

    def peer_closed(self) -> bool:
        """Whoever sends has no last acknowledgement to be heard, so an answer to its good-bye is enough."""
        if self._answer is None or self.closed is not None:
            return super().peer_closed()
        try:
            self.flush()
            while count := self._transport.recv_into(self._connection.receive_buffer()):
                self._connection.received(count)
                while (event := self._connection.next_event()) is not None:
                    if isinstance(event, self._answer):
                        return True
        except PeerError:
            return True
        return count == 0

    def resize(self, size: int) -> None:
        """From here on messages have this many bytes."""
        if size not in self._batches:
            if len(self._batches) >= _KEPT_BATCHES:
                del self._batches[next(iter(self._batches))]
            self._batches[size] = self._new_batch(size)
        self._size = size
        self._batch = self._batches[size]
        self.capacity: int = self._batch.capacity
        self.bodies: Octets = self._batch.bodies
        self.stamps: Stamps = stamps_of(self.bodies)

    def send(self, first_seq: int, count: int) -> bool:
        place = self._numbering.count
        self._numbering.sent(first_seq, count)
        if self._batching and self._fits_a_frame():
            self._send_batch(count, place)
            self.batched += count
        else:
            for body in self.bodies[:count]:
                self._send_one(body.tobytes(), place)
                place += 1
        return self.flush() and self._broken is None

    def prepare(self, count: int) -> memoryview | None:
        if not self._batching or not self._fits_a_frame():
            return None
        return self._prepare(count, self._numbering.count)

    def write(self, octets: memoryview) -> bool:
        outgoing = self._connection.outgoing
        if self._straight is not None and not outgoing:
            try:
                written = self._straight(octets)
            except OSError:
                written = 0  # full, or broken: `flush` finds out which
            if written == len(octets):
                return True
            octets = octets[written:]
        outgoing.append(octets)
        return self.flush() and self._broken is None

    def departed(self, first_seq: int, sent_ns: list[int]) -> None:
        place, count = self._numbering.count, len(sent_ns)
        self._numbering.sent(first_seq, count)
        self._depart(place, sent_ns)
        self.batched += count
        self._written_ns = sent_ns[-1]

    def _outcomes(self, stretches: Iterable[tuple[int, int]], settlement: int) -> list[SettledMessages]:
        """What became of the messages from each first to its last place on this connection."""
        return [SettledMessages(seqs, settlement) for seqs in self._numbering.sequences(stretches)]

    def _outcome_at(self, places: npt.NDArray[np.int64], settlement: int) -> SettledMessages:
        """What became of the messages at these places on this connection, in any order."""
        return SettledMessages(self._numbering.at(places), settlement)

    def _fits_a_frame(self) -> bool:
        """Whether a message of this size needs no splitting, which batches cannot do."""
        return True

    @abstractmethod
    def _new_batch(self, size: int) -> Batch:
        """A batch of messages of this size."""

    @abstractmethod
    def _send_batch(self, count: int, place: int) -> None:
        """The first messages of the batch; `place` is where they begin on this connection."""

    def _prepare(self, count: int, place: int) -> memoryview | None:
        """The same bytes before their time, where nothing but their numbers depends on what left before them."""
        return None

    def _depart(self, place: int, sent_ns: list[int]) -> None:
        """Prepared messages were written, one at each of these times, the first at this place."""

    @abstractmethod
    def _send_one(self, body: bytes, place: int) -> None:
        """One message the exact way, and its place on this connection."""
