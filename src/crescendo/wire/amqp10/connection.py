"""What is the state of one AMQP 1.0 connection, and which events follow from the bytes that arrived?

Sans-IO, for client and server: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and
bytes to write are queued in `outgoing`. One session, any number of links. Reads no clock: it only holds the idle
timeouts, and the owner of the socket enforces them.
"""

from collections import deque

import msgspec

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.arrivals import Arrivals
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.events import Closed, Event, Opened, Refused, Settled, error_text
from crescendo.wire.amqp10.frames import (
    HEADER_BYTES,
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    decode_frame,
    encode_message,
    frame_length,
)
from crescendo.wire.amqp10.handshake import ClientSasl, Credentials, HandshakeRefusedError, ServerSasl
from crescendo.wire.amqp10.links import RECEIVER, SENDER, SETTLE_SECOND, SETTLE_SETTLED, SETTLE_UNSETTLED
from crescendo.wire.amqp10.opening import Opening
from crescendo.wire.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from crescendo.wire.amqp10.serial import SERIAL_MASK, serial_distance
from crescendo.wire.amqp10.session import WINDOW, Session
from crescendo.wire.amqp10.termini import source_at, target_at
from crescendo.wire.frame_buffer import FrameBuffer

MAX_FRAME_SIZE = 64 * 1024
_FRAMES_IN_BUFFER = 2  # so that one frame always fits behind part of another
_PROTOCOL_BYTES = 8
_TRANSFER_BYTES = 64  # upper bound for frame header, transfer and section header of our messages


class Connection:
    """One side of a connection."""

    def __init__(
        self,
        *,
        container_id: str,
        hostname: str = "",
        server: bool = False,
        credentials: Credentials | None = None,
        external: bool = False,
        max_frame_size: int = MAX_FRAME_SIZE,
        idle_time_out_ms: int = 0,
        batching: bool = True,
        accepts_links: bool = False,
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_idle_time_out_ms = 0
        self.idle_time_out_ms = idle_time_out_ms
        self.deliveries_sent = 0  # messages on all links; the next delivery id is this modulo 2^32
        self.closed = False
        self._closing = False
        self._buffer = FrameBuffer(max_frame_size, frames=_FRAMES_IN_BUFFER)
        self._session = Session(self.outgoing, server=server, accepts_links=server or accepts_links)
        self.links = self._session.links.by_handle
        self._arrivals = Arrivals(self._buffer, self._session, batching=batching)
        first_performatives: list[Composite] = [
            Open(container_id, hostname or None, max_frame_size, 0, idle_time_out_ms or None)
        ]
        if not server:
            first_performatives.append(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        sasl = ServerSasl(credentials) if server else ClientSasl(credentials, hostname, external=external)
        self._opening = Opening(sasl, first_performatives, self.outgoing)

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """The buffer for the next read. Invalidates the views of earlier deliveries."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """Record that `count` bytes were read into the receive buffer."""
        self._buffer.filled(count)

    def next_event(self) -> Event | None:
        """The next event, or None when more bytes are needed."""
        buffer = self._buffer
        try:
            while not self.closed:
                if self._opening.expects_header:
                    if not self._take_header():
                        return None
                    continue
                length = frame_length(buffer.view[: buffer.end], buffer.start, buffer.frame_max)
                if length is None or buffer.end - buffer.start < length:
                    return None
                event = self._arrivals.take_run(length) or self._take_frame(length)
                if event is not None:
                    return event
        except HandshakeRefusedError as refusal:
            self.closed = True
            return Refused(str(refusal))
        return None

    def take_settlements(self) -> list[Settled]:
        """The next settlements that match earlier ones, merged, as `next_event` would report them.

        Flows between them are applied without an event.
        """
        return self._arrivals.take_settlements()

    # -- sending -------------------------------------------------------------------------------------------------

    def attach_sender(
        self, name: str, address: str, *, settled: bool, topic: bool = False, settle_second: bool = False
    ) -> int:
        """Attach a sending link; returns its handle."""
        target = target_at(address, topic=topic)
        return self.attach(name, SENDER, Source(), target, settled=settled, settle_second=settle_second)

    def attach_receiver(
        self,
        name: str,
        address: str,
        *,
        settled: bool,
        topic: bool = False,
        settle_second: bool = False,
        selector: str | None = None,
        durable: bool = False,
    ) -> int:
        """Attach a receiving link; returns its handle. Messages arrive once credit is granted.

        With `durable` it is a durable subscription, identified by container id and link name.
        """
        source = source_at(address, topic=topic, selector=selector, durable=durable)
        return self.attach(name, RECEIVER, source, Target(), settled=settled, settle_second=settle_second)

    def attach(
        self,
        name: str,
        role: bool,
        source: Source,
        target: Target,
        *,
        settled: bool = False,
        settle_second: bool = False,
    ) -> int:
        """Attach a link between these termini; returns its handle."""
        handle = self._session.links.new(name, role).handle
        attach = Attach(name, handle, role, SETTLE_SETTLED if settled else SETTLE_UNSETTLED, 0, source, target)
        attach.rcv_settle_mode = SETTLE_SECOND if settle_second else 0
        attach.initial_delivery_count = 0 if role is SENDER else None
        self._session.send(attach)
        return handle

    def accept_attach(self, handle: int, attach: Attach) -> None:
        """As a server: accept a link that the peer attached."""
        answer = Attach(
            attach.name,
            handle=handle,
            role=not attach.role,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=0,
            source=attach.source,
            target=attach.target,
            initial_delivery_count=0 if attach.role is RECEIVER else None,
        )
        self._session.send(answer)

    def grant(self, handle: int, credit: int) -> None:
        """Grant credit: the peer may send `credit` messages from now on."""
        link = self.links[handle]
        link.credit_limit = (link.delivery_count + credit) & SERIAL_MASK
        self._session.send_credit(link, credit)

    def sendable(self, handle: int, body_length: int = 0) -> int:
        """How many messages with bodies of this length may be sent on this link now.

        The link's credit counts messages, the session's window counts frames.
        """
        window = self._session.remote_window
        if body_length + _TRANSFER_BYTES > self.remote_max_frame_size:
            window //= -(-(body_length + HEADER_BYTES) // (self.remote_max_frame_size - _TRANSFER_BYTES))
        link = self.links[handle]
        return max(min(serial_distance(link.credit_limit, link.delivery_count), window), 0)

    @property
    def next_delivery_id(self) -> int:
        return self.deliveries_sent & SERIAL_MASK

    def transfer(self, batch: TransferBatch, handle: int, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(self.prepared(batch, count))
        self.transferred(handle, count)

    def prepared(self, batch: TransferBatch, count: int) -> memoryview:
        """The next transfers of a batch, numbered. A caller that writes them must call `transferred`."""
        return batch.frames(self.deliveries_sent & SERIAL_MASK, count)

    def transferred(self, handle: int, count: int) -> None:
        """Record that `count` prepared transfers were written."""
        self.deliveries_sent += count
        session, link = self._session, self.links[handle]
        session.next_outgoing_id = (session.next_outgoing_id + count) & SERIAL_MASK
        session.remote_window -= count
        link.delivery_count = (link.delivery_count + count) & SERIAL_MASK

    def transfer_one(self, handle: int, body: bytes, *, settled: bool, before: bytes = b"") -> None:
        """Queue one message through the scalar path; `before` holds the sections in front of the body."""
        self.transfer_message(handle, encode_message(body, before), settled=settled)

    def transfer_message(self, handle: int, message: bytes, *, settled: bool = False) -> int:
        """Queue one encoded message, split to the peer's maximum frame size; returns its delivery id."""
        delivery_id = self.next_delivery_id
        self.deliveries_sent += 1
        first = Transfer(handle, delivery_id, delivery_id.to_bytes(4, "big"), 0, settled)
        self._session.send_message(first, message, self.remote_max_frame_size)
        link = self.links[handle]
        link.delivery_count = (link.delivery_count + 1) & SERIAL_MASK
        return delivery_id

    def settle(
        self, first: int, last: int, state: Composite | None = None, *, role: bool = RECEIVER, settled: bool = True
    ) -> None:
        """Settle the deliveries first to last, or only state their outcome: accepted unless `state` is given."""
        if state is None:
            self._session.send_accepted(first, last, role=role, settled=settled)
        else:
            self._session.send(Disposition(role, first, last, settled, state))

    def refuse_attach(self, handle: int, attach: Attach, condition: str, description: str) -> None:
        """As a server: answer without the requested terminus, then detach with the reason."""
        missing = "source" if attach.role is RECEIVER else "target"
        self.accept_attach(handle, msgspec.structs.replace(attach, **{missing: None}))
        self._session.send(Detach(handle, True, Error(condition, description)))
        self.links[handle].detached = True

    def detach(self, handle: int) -> None:
        self._session.send(Detach(handle, True))
        self.links[handle].detached = True

    def close(self, condition: str = "", description: str = "") -> None:
        """Start the close handshake, with an error when a condition is given."""
        if not self.closed and self._opening.signed_in:
            self._session.send(Close(Error(condition, description or None) if condition else None))
            self._closing = True

    def heartbeat(self) -> None:
        if self._opening.signed_in:
            self.outgoing.append(memoryview(HEARTBEAT))

    # -- receiving -----------------------------------------------------------------------------------------------

    def _take_header(self) -> bool:
        buffer = self._buffer
        if buffer.end - buffer.start < _PROTOCOL_BYTES:
            return False
        header = bytes(buffer.view[buffer.start : buffer.start + _PROTOCOL_BYTES])
        buffer.start += _PROTOCOL_BYTES
        self._opening.take_header(header)
        return True

    def _take_frame(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        frame = decode_frame(octets)
        if not self._opening.signed_in:
            buffer.start += length
            self._opening.take_frame(frame)
            return None
        if frame.kind == SASL_FRAME:
            raise PeerError("a SASL frame after sign-in")
        match frame.performative:
            case Transfer() as transfer:
                return self._arrivals.take_transfer(octets, frame, transfer)
            case Disposition() as disposition:
                return self._arrivals.take_disposition(octets, disposition)
            case Flow() as flow:
                return self._arrivals.take_flow(octets, flow)
            case performative:
                buffer.start += length
                return self._take_performative(frame.channel, performative)

    def _take_performative(self, channel: int, performative: Composite | None) -> Event | None:
        match performative:
            case None:
                return None  # a heartbeat; the owner of the socket has seen the bytes
            case Open():
                self.remote_max_frame_size = max(performative.max_frame_size or 2**32 - 1, MIN_MAX_FRAME_SIZE)
                self.remote_idle_time_out_ms = performative.idle_time_out or 0
                return Opened(performative.container_id, str((performative.properties or {}).get("product", "")))
            case Begin():
                return self._session.take_begin(channel, performative)
            case Attach():
                return self._session.take_attach(performative)
            case Detach():
                self._arrivals.forget()
                return self._session.take_detach(performative)
            case End():
                self._arrivals.forget()
                return self._session.take_end(performative)
            case Close(error=error):
                if not self._closing:
                    self._session.send(Close())
                self.closed = True
                return Closed(error_text(error))
            case _:
                raise PeerError(f"{type(performative).__name__} is not a performative of a connection")
