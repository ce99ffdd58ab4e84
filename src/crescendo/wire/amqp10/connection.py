"""What is the state of one AMQP 1.0 connection, and what follows from the bytes that arrived?

Sans-IO and the same for both sides: bytes go in through `receive_buffer`/`received`, events come out of `next_event`,
and what must be written stands in `outgoing`. One session, any number of links. It reads no clock: idle time-outs are
numbers here, and whoever owns the socket watches them.
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
from crescendo.wire.amqp10.handshake import ClientSasl, Credentials, RefusedError, ServerSasl
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
from crescendo.wire.amqp10.serial import SERIAL, ahead
from crescendo.wire.amqp10.session import WINDOW, Session
from crescendo.wire.amqp10.termini import source_at, target_at
from crescendo.wire.frame_buffer import FrameBuffer

MAX_FRAME_SIZE = 64 * 1024
_FRAMES_IN_BUFFER = 2  # there is always room for one behind the rest of another
_PROTOCOL_BYTES = 8
_TRANSFER_BYTES = 64  # more than frame header, transfer and section header of any message of ours take


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
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_idle_time_out_ms = 0
        self.idle_time_out_ms = idle_time_out_ms
        self.deliveries_sent = 0  # counts messages, on all links; the next delivery id is this modulo 2^32
        self.closed = False
        self._closing = False
        self._buffer = FrameBuffer(max_frame_size, frames=_FRAMES_IN_BUFFER)
        self._session = Session(self.outgoing, server=server)
        self.links = self._session.links.by_handle
        self._arrivals = Arrivals(self._buffer, self._session, batching=batching)
        first_words: list[Composite] = [
            Open(container_id, hostname or None, max_frame_size, 0, idle_time_out_ms or None)
        ]
        if not server:
            first_words.append(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        sasl = ServerSasl(credentials) if server else ClientSasl(credentials, hostname, external=external)
        self._entrance = Opening(sasl, first_words, self.outgoing)

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier deliveries are void from here on."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._buffer.filled(count)

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        buffer = self._buffer
        try:
            while not self.closed:
                if self._entrance.expects_header:
                    if not self._take_header():
                        return None
                    continue
                length = frame_length(buffer.view[: buffer.end], buffer.start, buffer.frame_max)
                if length is None or buffer.end - buffer.start < length:
                    return None
                event = self._arrivals.take_run(length) or self._take_frame(length)
                if event is not None:
                    return event
        except RefusedError as refusal:
            self.closed = True
            return Refused(str(refusal))
        return None

    def take_answers(self) -> list[Settled]:
        """What `next_event` would say of the settlements that come next, as far as they are like earlier ones.

        Flows between them are taken in without a word.
        """
        return self._arrivals.take_answers()

    # -- things to say -------------------------------------------------------------------------------------------

    def attach_sender(
        self, name: str, address: str, *, settled: bool, topic: bool = False, settle_second: bool = False
    ) -> int:
        """Attach a link on which we send; returns its handle."""
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
        """Attach a link on which we receive; returns its handle. Messages come once credit is granted.

        A durable one is a subscription that stays, under the link's and the container's name.
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
        """Attach a link between these; returns its handle."""
        handle = self._session.links.new(name, role).handle
        attach = Attach(name, handle, role, SETTLE_SETTLED if settled else SETTLE_UNSETTLED, 0, source, target)
        attach.rcv_settle_mode = SETTLE_SECOND if settle_second else 0
        attach.initial_delivery_count = 0 if role is SENDER else None
        self._session.send(attach)
        return handle

    def accept_attach(self, handle: int, attach: Attach) -> None:
        """As a server: answer a link that the other side attached."""
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
        """Allow the other side to send `credit` messages from now on."""
        link = self.links[handle]
        link.credit_limit = (link.delivery_count + credit) & SERIAL
        self._session.send_credit(link, credit)

    def sendable(self, handle: int, body_length: int = 0) -> int:
        """How many messages with bodies of this length may be sent on this link now: credit counts messages, the
        session's window counts frames."""
        window = self._session.remote_window
        if body_length + _TRANSFER_BYTES > self.remote_max_frame_size:
            window //= -(-(body_length + HEADER_BYTES) // (self.remote_max_frame_size - _TRANSFER_BYTES))
        link = self.links[handle]
        return max(min(ahead(link.credit_limit, link.delivery_count), window), 0)

    @property
    def next_delivery_id(self) -> int:
        return self.deliveries_sent & SERIAL

    def transfer(self, batch: TransferBatch, handle: int, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(self.prepared(batch, count))
        self.transferred(handle, count)

    def prepared(self, batch: TransferBatch, count: int) -> memoryview:
        """The transfers of a batch as they would leave next; whoever writes them says so with `transferred`."""
        return batch.frames(self.deliveries_sent & SERIAL, count)

    def transferred(self, handle: int, count: int) -> None:
        """So many prepared transfers were written."""
        self.deliveries_sent += count
        session, link = self._session, self.links[handle]
        session.next_outgoing_id = (session.next_outgoing_id + count) & SERIAL
        session.remote_window -= count
        link.delivery_count = (link.delivery_count + count) & SERIAL

    def transfer_one(self, handle: int, body: bytes, *, settled: bool, before: bytes = b"") -> None:
        """Queue one message with this body by the scalar path; `before` holds the sections in front of it."""
        self.transfer_message(handle, encode_message(body, before), settled=settled)

    def transfer_message(self, handle: int, message: bytes, *, settled: bool = False) -> int:
        """Queue one encoded message, in as many frames as the other side's limit demands; returns its delivery id."""
        delivery_id = self.next_delivery_id
        self.deliveries_sent += 1
        first = Transfer(handle, delivery_id, delivery_id.to_bytes(4, "big"), 0, settled)
        self._session.send_message(first, message, self.remote_max_frame_size)
        link = self.links[handle]
        link.delivery_count = (link.delivery_count + 1) & SERIAL
        return delivery_id

    def settle(
        self, first: int, last: int, state: Composite | None = None, *, role: bool = RECEIVER, settled: bool = True
    ) -> None:
        """Settle the deliveries first to last, or only say how: accepted unless another state is given."""
        if state is None:
            self._session.send_accepted(first, last, role=role, settled=settled)
        else:
            self._session.send(Disposition(role, first, last, settled, state))

    def refuse_attach(self, handle: int, attach: Attach, condition: str, description: str) -> None:
        """As a server: answer without the terminus that was asked for, then say why."""
        missing = "source" if attach.role is RECEIVER else "target"
        self.accept_attach(handle, msgspec.structs.replace(attach, **{missing: None}))
        self._session.send(Detach(handle, True, Error(condition, description)))
        self.links[handle].detached = True

    def detach(self, handle: int) -> None:
        self._session.send(Detach(handle, True))
        self.links[handle].detached = True

    def close(self, condition: str = "", description: str = "") -> None:
        """Say good-bye; with a condition, say why."""
        if not self.closed and self._entrance.signed_in:
            self._session.send(Close(Error(condition, description or None) if condition else None))
            self._closing = True

    def heartbeat(self) -> None:
        if self._entrance.signed_in:
            self.outgoing.append(memoryview(HEARTBEAT))

    # -- frames in -----------------------------------------------------------------------------------------------

    def _take_header(self) -> bool:
        buffer = self._buffer
        if buffer.end - buffer.start < _PROTOCOL_BYTES:
            return False
        header = bytes(buffer.view[buffer.start : buffer.start + _PROTOCOL_BYTES])
        buffer.start += _PROTOCOL_BYTES
        self._entrance.take_header(header)
        return True

    def _take_frame(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        frame = decode_frame(octets)
        if not self._entrance.signed_in:
            buffer.start += length
            self._entrance.take_frame(frame)
            return None
        if frame.kind == SASL_FRAME:
            raise PeerError("a SASL frame after the sign-in was over")
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
                return None  # a heartbeat; whoever watches the socket has seen the bytes
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
                raise PeerError(f"{type(performative).__name__} is no performative of a connection")
