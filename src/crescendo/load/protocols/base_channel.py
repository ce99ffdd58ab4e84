"""What do connections of every protocol have in common?

A socket and a sans-IO codec make a channel that never blocks. It writes the codec's output, reads once when asked and
hands out the decoded events, sends and expects heartbeats, and keeps the reason that the system gave for closing. What
the events mean is left to the protocol.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crescendo.load.protocols.interfaces import Octets, SettledMessages
from crescendo.load.protocols.sequence_map import SequenceMap
from crescendo.model.errors import PeerError
from crescendo.model.protocols import default_port
from crescendo.model.urls import parse_url
from crescendo.model.workload import Group, Settle
from crescendo.net.tls import tls_of_url
from crescendo.net.transport import Transport, connect
from crescendo.wire.stamp import Stamps, stamps_of

_NS_PER_S = 10**9
_MAX_BATCHES = 64
_DISCARD_BUFFER = memoryview(bytearray(1 << 16))  # receives what arrives after our close frame
_SLOW_PREFETCH_NS = 100_000_000  # a slow receiver prefetches at most this much work


class ConnectionCodec(Protocol):
    """What every sans-IO connection of this project offers."""

    outgoing: deque[memoryview]

    def receive_buffer(self) -> memoryview: ...

    def received(self, count: int) -> None: ...

    def next_event(self) -> Any: ...


class BaseChannel(ABC):
    """One connection, in either direction."""

    _transport: Transport
    _connection: Any  # a ConnectionCodec; each protocol narrows the type
    _close_reply: type | None = None
    """The event that answers our close frame, if it is enough: everything before it is processed, and a sender has no
    last acknowledgement to deliver. None: wait until the system closes the socket."""
    _linger_s = 0.0
    """After that answer, how long the system may still process acknowledgements before we close the socket."""

    def __init__(self, url: str, group: Group, *, batching: bool) -> None:
        parts = parse_url(url)
        self._tls = tls_of_url(url)
        self._host = parts.host or "127.0.0.1"
        self._port = parts.port or default_port(parts.scheme)
        self._path = parts.virtual_host
        self._user = parts.user
        self._password = parts.password or ""
        self._group = group
        self._batching = batching
        self._waits_for_outcomes = group.settle is not Settle.AT_MOST_ONCE
        self._write_error: str | None = None  # why writing failed; nothing more can be written
        self._close_sent = False
        self._answered_s: float | None = None  # when the system answered our close frame
        self.ready = False
        self.closed: str | None = None
        self.read_limit: int | None = None
        self.stamps_reads = False
        self.arrived_ns: int | None = None
        self.drained = True

    def _dial(self, codec: ConnectionCodec) -> None:
        self._connection = codec
        self._transport = connect(self._host, self._port, tls=self._tls)
        self._transport.stamp_arrivals()
        self._transport.limit_silence(self._group.connection)
        self._direct_send = self._transport.socket_send
        self._write_error = None
        self.read_ns = self._written_ns = time.monotonic_ns()

    @property
    def pending(self) -> bool:
        return self._transport.pending

    def fileno(self) -> int:
        return self._transport.fileno()

    def oldest_unread_ns(self) -> int | None:
        return self._transport.oldest_unread_ns() if self.closed is None else None

    def flush(self) -> bool:
        outgoing = self._connection.outgoing
        if not outgoing or self.closed is not None:
            return True
        if self._write_error is not None:
            outgoing.clear()
            return True
        try:
            done = self._transport.flush(outgoing)
        except PeerError as err:
            # A peer that closes while we write has often sent a reason and many confirmations: they are still to be
            # read, and reading is sure to find the end of the stream.
            self._write_error = str(err)
            outgoing.clear()
            return True
        self._written_ns = time.monotonic_ns()
        return done

    def keep_alive(self, now_ns: int) -> None:
        """Send heartbeats and expect them, at the negotiated intervals."""
        if self.closed is not None:
            return
        timeout_ns, interval_ns = self._idle_timeout_ns(), self._heartbeat_interval_ns()
        if timeout_ns and now_ns - self.read_ns > timeout_ns:
            self._fail(f"the system has been silent for {(now_ns - self.read_ns) / _NS_PER_S:.0f} s")
        elif interval_ns and now_ns - self._written_ns > interval_ns and not self._connection.outgoing:
            self._connection.heartbeat()
            self.flush()

    def give_up(self, reason: str) -> None:
        if self.closed is None:
            self._fail(reason)

    def start_close(self) -> None:
        if self.closed is None and not self._close_sent:
            self._close_sent = True
            self._send_close()
            self.flush()

    def peer_closed(self) -> bool:
        if self.closed is not None:
            return True
        if self._answered_s is not None and time.monotonic() - self._answered_s >= self._linger_s:
            return True
        try:
            self.flush()
            if self._close_reply is not None:
                return self._is_close_answered(self._close_reply)
            while count := self._transport.recv_into(_DISCARD_BUFFER):
                pass
        except PeerError:
            return True
        return count == 0

    def _is_close_answered(self, reply: type) -> bool:
        """Some systems answer and then wait for the client to close the socket."""
        while count := self._transport.recv_into(self._connection.receive_buffer()):
            self._connection.received(count)
            while (event := self._connection.next_event()) is not None:
                if isinstance(event, reply):
                    self._answered_s = time.monotonic()
                    if not self._linger_s:
                        return True
        return count == 0

    def close(self) -> None:
        self.start_close()
        if self.closed is None:
            self.closed = "closed by us"
        self._transport.close()

    def _events(self, limit: int | None = None) -> Iterator[Any]:
        """Read once, at most `limit` bytes; yield the events that `_handle` left."""
        self.drained = True
        if self.closed is not None:
            return
        if limit is None:
            limit = self.read_limit
        try:
            more = True
            while more:
                buffer = self._connection.receive_buffer()[:limit]
                if self.stamps_reads:
                    count, self.arrived_ns = self._transport.recv_stamped(buffer)
                else:
                    count = self._transport.recv_into(buffer)
                if count is None:
                    break
                self.drained = count < len(buffer)
                if count == 0:
                    raise PeerError(self._end_of_stream_reason())
                self.read_ns = time.monotonic_ns()
                self._connection.received(count)
                yield from self._decoded_events()
                more = limit is None and self.closed is None and self.pending and not self._is_paused
        except PeerError as err:
            self._on_connection_error(self._write_error or str(err))
            return
        self.flush()

    def _decoded_events(self) -> Iterator[Any]:
        while self.closed is None and not self._is_paused and (event := self._connection.next_event()) is not None:
            if not self._handle(event):
                yield event

    def _fail(self, reason: str) -> None:
        self.closed = reason
        self.ready = False
        self._transport.close()

    def _on_connection_error(self, reason: str) -> None:
        """The connection broke, or its bytes cannot be decoded."""
        self._fail(reason)

    def _end_of_stream_reason(self) -> str:
        return "the system closed the connection"

    @property
    def _subscription_name(self) -> str | None:
        """The durable subscription that this connection holds. Only one connection may hold it."""
        return self._group.target.options.subscription

    @property
    def _is_paused(self) -> bool:
        """Whether arriving messages must wait, because the engine does not record yet."""
        return False

    @property
    def _is_writable(self) -> bool:
        """Whether more may be written: attached, and everything earlier is written."""
        return self.ready and self._write_error is None and not self._connection.outgoing

    @abstractmethod
    def _handle(self, event: Any) -> bool:
        """Handle an event that means the same in both directions; False for all others."""

    @abstractmethod
    def _send_close(self) -> None:
        """Queue the protocol's close frame."""

    @abstractmethod
    def _idle_timeout_ns(self) -> int:
        """How long the system may be silent; 0 if it did not promise heartbeats."""

    @abstractmethod
    def _heartbeat_interval_ns(self) -> int:
        """After how long a silence we send a heartbeat; 0 if the system expects none."""


UNLIMITED = 2**31
"""The window of a connection on which nothing is settled."""


def prefetch_of(group: Group, default: int) -> int:
    """How many messages may be in flight to one receiver: as requested, few for a slow one, else the default."""
    asked = group.target.options.prefetch
    if asked is not None or not group.consuming_ns:
        return asked or default
    return max(1, min(default, _SLOW_PREFETCH_NS // group.consuming_ns))


class Batch(Protocol):
    """Messages of one size that are sent together."""

    bodies: Octets
    capacity: int


class BaseSendChannel(BaseChannel):
    """What sending channels share: batches by size, and the position of each message on this connection."""

    _batch: Any  # a Batch; each protocol narrows the type

    def __init__(self, url: str, group: Group, **options: Any) -> None:
        super().__init__(url, group, **options)
        self._sequence_map = SequenceMap()
        self._batches: dict[int, Any] = {}
        self._size = int(group.size)
        self.batched = 0

    @property
    def _subscription_name(self) -> str | None:
        return None  # a sender subscribes to nothing

    def resize(self, size: int) -> None:
        """From here on messages have this many bytes."""
        if size not in self._batches:
            if len(self._batches) >= _MAX_BATCHES:
                del self._batches[next(iter(self._batches))]
            self._batches[size] = self._new_batch(size)
        self._size = size
        self._batch = self._batches[size]
        self.capacity: int = self._batch.capacity
        self.bodies: Octets = self._batch.bodies
        self.stamps: Stamps = stamps_of(self.bodies)

    def send(self, first_seq: int, count: int) -> bool:
        position = self._sequence_map.count
        self._sequence_map.sent(first_seq, count)
        if self._batching and self._fits_a_frame():
            self._send_batch(count, position)
            self.batched += count
        else:
            for body in self.bodies[:count]:
                self._send_one(body.tobytes(), position)
                position += 1
        return self.flush() and self._write_error is None

    def prepare(self, count: int) -> memoryview | None:
        if not self._batching or not self._fits_a_frame():
            return None
        return self._prepare(count, self._sequence_map.count)

    def write(self, octets: memoryview) -> bool:
        outgoing = self._connection.outgoing
        if self._direct_send is not None and not outgoing:
            try:
                written = self._direct_send(octets)
            except OSError:
                written = 0  # full, or broken: `flush` finds out which
            if written == len(octets):
                return True
            octets = octets[written:]
        outgoing.append(octets)
        return self.flush() and self._write_error is None

    def mark_prepared_sent(self, first_seq: int, sent_ns: list[int]) -> None:
        position, count = self._sequence_map.count, len(sent_ns)
        self._sequence_map.sent(first_seq, count)
        self._on_prepared_sent(position, sent_ns)
        self.batched += count
        self._written_ns = sent_ns[-1]

    def _settled_ranges(self, ranges: Iterable[tuple[int, int]], settlement: int) -> list[SettledMessages]:
        """The outcome of the messages from each first to its last position on this connection."""
        return [SettledMessages(seqs, settlement) for seqs in self._sequence_map.sequences(ranges)]

    def _settled_positions(self, positions: npt.NDArray[np.int64], settlement: int) -> SettledMessages:
        """The outcome of the messages at these positions on this connection, in any order."""
        return SettledMessages(self._sequence_map.at(positions), settlement)

    def _fits_a_frame(self) -> bool:
        """Whether a message of this size fits in one frame; batches cannot split messages."""
        return True

    @abstractmethod
    def _new_batch(self, size: int) -> Batch:
        """A batch of messages of this size."""

    @abstractmethod
    def _send_batch(self, count: int, position: int) -> None:
        """Send the first `count` messages of the batch; `position` is that of the first one on this connection."""

    def _prepare(self, count: int, position: int) -> memoryview | None:
        """Encode the same bytes ahead of time; None if they depend on more than the number of earlier messages."""
        return None

    def _on_prepared_sent(self, position: int, sent_ns: list[int]) -> None:
        """Prepared messages were written, one at each of these times, from this position on."""

    @abstractmethod
    def _send_one(self, body: bytes, position: int) -> None:
        """Send one message by the scalar path; `position` is its position on this connection."""
