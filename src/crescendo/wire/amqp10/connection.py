"""What is the state of one AMQP 1.0 connection, and what follows from the bytes that arrived?

Sans-IO and the same for both sides: bytes go in through `receive_buffer`/`received`, events come out of `next_event`,
and what must be written stands in `outgoing`. One session, any number of links. It reads no clock: idle time-outs are
numbers here, and whoever owns the socket watches them.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.batch import Layout, TransferBatch, layout_of, rows_of
from crescendo.wire.amqp10.events import (
    Attached,
    Begun,
    Closed,
    Credited,
    Deliveries,
    Detached,
    Ended,
    Event,
    Opened,
    Refused,
    Settled,
    error_text,
)
from crescendo.wire.amqp10.frames import (
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    PROTOCOL_AMQP,
    PROTOCOL_SASL,
    SASL_FRAME,
    Frame,
    decode_frame,
    encode_frame,
    encode_message,
    find_body,
    frame_length,
)
from crescendo.wire.amqp10.handshake import ClientSasl, Credentials, RefusedError, ServerSasl, check_header
from crescendo.wire.amqp10.performatives import (
    Accepted,
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
    encode_composite,
)
from crescendo.wire.amqp10.settling import Settling, settling_of
from crescendo.wire.amqp10.shapes import FlowShape, Memory
from crescendo.wire.amqp10.types import Described, Symbol, ULong

MAX_FRAME_SIZE = 64 * 1024
MAX_MESSAGE_SIZE = 128 * 2**20
MAX_LINKS = 65_536
WINDOW = 2**31 - 1
_BUFFER_BYTES = 512 * 1024
_SERIAL = 0xFFFF_FFFF
_HEADER_BYTES = 8
_TRANSFER_BYTES = 64  # more than frame header, transfer and section header of any message of ours take

SENDER, RECEIVER = False, True
TOPIC = "topic"
SETTLE_UNSETTLED, SETTLE_SETTLED = 0, 1
SETTLE_SECOND = 1  # of a receiver: it settles once the sender has
_DURABLE = 2  # of a terminus: what it holds and what is unsettled survive
_SELECTOR = Symbol("jms-selector")
_SELECTOR_CODE = ULong(0x0000_468C_0000_0004)


@dataclass(slots=True)
class Link:
    """One link of ours and how far both sides are."""

    handle: int
    name: str
    role: bool
    remote_handle: int | None = None
    delivery_count: int = 0
    credit_limit: int = 0  # the delivery count up to which the sender may go
    partial: bytearray | None = None  # as a receiver: a message whose frames have not all come
    partial_id: int = 0
    partial_settled: bool = False
    detached: bool = False  # we have said so; the other side's answer is still to come
    max_message_size: int = 0


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
        self.links: dict[int, Link] = {}
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_idle_time_out_ms = 0
        self.idle_time_out_ms = idle_time_out_ms
        self.closed = False
        self._open = Open(container_id, hostname or None, max_frame_size, 0, idle_time_out_ms or None)
        self._server = server
        self._max_frame_size = max_frame_size
        self._batching = batching
        self._buffer = bytearray(max(_BUFFER_BYTES, 2 * max_frame_size))
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._expects_header = True
        self._signed_in = False
        self._begun = False
        self._closing = False
        self._channel = 0
        self._by_remote: dict[int, Link] = {}
        self._by_name: dict[tuple[str, bool], Link] = {}
        self._next_outgoing_id = 0  # counts frames
        self.deliveries_sent = 0  # counts messages, on all links; the next delivery id is this modulo 2^32
        self._remote_window = 0
        self._next_incoming_id = 0
        self._layouts: Memory[Layout] = Memory()
        self._settlings: Memory[Settling] = Memory()
        self._flows: Memory[FlowShape] = Memory()
        self._partials = 0
        self._sasl: ClientSasl | ServerSasl
        if server:
            self._sasl = ServerSasl(credentials)
        else:
            self._sasl = ClientSasl(credentials, hostname, external=external)
            self._queue(self._sasl.greeting())

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier deliveries are void from here on."""
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._buffer) - self._end < self._max_frame_size:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._end += count

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        try:
            while not self.closed:
                if self._expects_header:
                    if not self._take_header():
                        return None
                    continue
                length = frame_length(self._view[self._start : self._end], 0, self._max_frame_size)
                if length is None or self._end - self._start < length:
                    return None
                event = self._take_run(length) or self._take_frame(length)
                if event is not None:
                    return event
        except RefusedError as refusal:
            self.closed = True
            return Refused(str(refusal))
        return None

    # -- things to say -------------------------------------------------------------------------------------------

    def attach_sender(
        self, name: str, address: str, *, settled: bool, topic: bool = False, settle_second: bool = False
    ) -> int:
        """Attach a link on which we send; returns its handle."""
        target = Target(address=address, capabilities=_capabilities(topic))
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
        source = Source(address=address, capabilities=_capabilities(topic))
        if selector is not None:
            source.filter = {_SELECTOR: Described(_SELECTOR_CODE, selector)}
        if durable:
            source.durable, source.expiry_policy = _DURABLE, Symbol("never")
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
        handle = len(self.links)
        while handle in self.links:
            handle += 1
        self._add_link(handle, name, role)
        attach = Attach(name, handle, role, SETTLE_SETTLED if settled else SETTLE_UNSETTLED, 0, source, target)
        attach.rcv_settle_mode = SETTLE_SECOND if settle_second else 0
        attach.initial_delivery_count = 0 if role is SENDER else None
        self._say(attach)
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
        self._say(answer)

    def grant(self, handle: int, credit: int) -> None:
        """Allow the other side to send `credit` messages from now on."""
        link = self.links[handle]
        link.credit_limit = (link.delivery_count + credit) & _SERIAL
        self._say(self._flow(handle=handle, delivery_count=link.delivery_count, link_credit=credit))

    def sendable(self, handle: int, body_length: int = 0) -> int:
        """How many messages with bodies of this length may be sent on this link now: credit counts messages, the
        session's window counts frames."""
        window = self._remote_window
        if body_length + _TRANSFER_BYTES > self.remote_max_frame_size:
            window //= -(-(body_length + _HEADER_BYTES) // (self.remote_max_frame_size - _TRANSFER_BYTES))
        return max(min(self._credit(self.links[handle]), window), 0)

    def _credit(self, link: Link) -> int:
        credit = (link.credit_limit - link.delivery_count) & _SERIAL
        return credit if credit <= WINDOW else 0  # else the limit lies behind us

    @property
    def next_delivery_id(self) -> int:
        return self.deliveries_sent & _SERIAL

    def transfer(self, batch: TransferBatch, handle: int, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(self.deliveries_sent & _SERIAL, count))
        self.deliveries_sent += count
        self._next_outgoing_id = (self._next_outgoing_id + count) & _SERIAL
        self._remote_window -= count
        link = self.links[handle]
        link.delivery_count = (link.delivery_count + count) & _SERIAL

    def transfer_one(self, handle: int, body: bytes, *, settled: bool, before: bytes = b"") -> None:
        """Queue one message with this body by the scalar path; `before` holds the sections in front of it."""
        self.transfer_message(handle, encode_message(body, before), settled=settled)

    def transfer_message(self, handle: int, message: bytes, *, settled: bool = False) -> int:
        """Queue one encoded message, in as many frames as the other side's limit demands; returns its delivery id."""
        delivery_id = self.next_delivery_id
        self.deliveries_sent += 1
        first = Transfer(handle, delivery_id, delivery_id.to_bytes(4, "big"), 0, settled)
        room = self.remote_max_frame_size - _HEADER_BYTES - len(encode_composite(first)) - 1  # 1: the more flag
        position = 0
        while True:
            piece = message[position : position + room]
            position += len(piece)
            more = position < len(message)
            performative = first if position == len(piece) else Transfer(handle)
            performative.more = True if more else None
            self._say(performative, piece)
            self._next_outgoing_id = (self._next_outgoing_id + 1) & _SERIAL
            self._remote_window -= 1
            if not more:
                break
        link = self.links[handle]
        link.delivery_count = (link.delivery_count + 1) & _SERIAL
        return delivery_id

    def settle(
        self, first: int, last: int, state: Composite | None = None, *, role: bool = RECEIVER, settled: bool = True
    ) -> None:
        """Settle the deliveries first to last, or only say how: accepted unless another state is given."""
        self._say(Disposition(role, first, last, settled, state if state is not None else Accepted()))

    def refuse_attach(self, handle: int, attach: Attach, condition: str, description: str) -> None:
        """As a server: answer without the terminus that was asked for, then say why."""
        missing = "source" if attach.role is RECEIVER else "target"
        self.accept_attach(handle, msgspec.structs.replace(attach, **{missing: None}))
        self._say(Detach(handle, True, Error(condition, description)))
        self.links[handle].detached = True

    def detach(self, handle: int) -> None:
        self._say(Detach(handle, True))
        self.links[handle].detached = True

    def close(self, condition: str = "", description: str = "") -> None:
        """Say good-bye; with a condition, say why."""
        if not self.closed and self._signed_in:
            self._say(Close(Error(condition, description or None) if condition else None))
            self._closing = True

    def heartbeat(self) -> None:
        if self._signed_in:
            self._queue(HEARTBEAT)

    # -- handshake -----------------------------------------------------------------------------------------------

    def _take_header(self) -> bool:
        if self._end - self._start < _HEADER_BYTES:
            return False
        header = bytes(self._view[self._start : self._start + _HEADER_BYTES])
        self._start += _HEADER_BYTES
        if self._server and not self._sasl.done:
            self._greet(header)
            return True
        check_header(header, PROTOCOL_AMQP if self._sasl.done else PROTOCOL_SASL)
        self._expects_header = False
        if self._server:
            self._queue(PROTOCOL_AMQP)
            self._enter()
        return True

    def _greet(self, header: bytes) -> None:
        assert isinstance(self._sasl, ServerSasl)  # noqa: S101 - narrows the type for mypy
        if header == PROTOCOL_AMQP and self._sasl.optional:
            self._sasl.done = True
            self._queue(PROTOCOL_AMQP)
            self._enter()
        else:
            self._queue(self._sasl.greeting())
            check_header(header, PROTOCOL_SASL)
        self._expects_header = False

    def _take_sasl(self, frame: Frame) -> None:
        if frame.kind != SASL_FRAME:
            raise PeerError("an AMQP frame before the sign-in was over")
        self._queue(self._sasl.answer(frame.performative))
        if not self._sasl.done:
            if self._server:
                raise RefusedError("wrong user or password")
            return
        self._expects_header = True
        if not self._server:
            self._queue(PROTOCOL_AMQP)
            self._enter()
            self._say(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))

    def _enter(self) -> None:
        self._signed_in = True
        self._say(self._open)

    # -- frames in -----------------------------------------------------------------------------------------------

    def _take_run(self, length: int) -> Event | None:
        """Recognise transfers, settlements and flows that look like earlier ones; the batch path."""
        settling = self._settlings.recall(length)
        if settling is not None:
            settled = self._take_settling(settling, length)
            if settled is not None:
                return settled
        shape = self._flows.recall(length)
        if shape is not None:
            flow = shape.read(bytes(self._view[self._start : self._start + length]))
            if flow is not None:
                self._start += length
                return self._take_flow(flow)
        layout = self._layouts.recall(length)
        if layout is None or self._partials:
            return None
        rows = rows_of(self._view[: self._end], self._start, length)
        count = layout.matches(rows)
        return self._deliver(layout, rows[:count], batched=True) if count else None

    def _take_settling(self, settling: Settling, length: int) -> Settled | None:
        """Settlements that are alike, as one."""
        start, following = self._start, self._start + length
        alone = settling.one(bytes(self._view[start:following]))
        if alone is None:
            return None
        count, stretches = 1, [alone]
        if following + length <= self._end and settling.one(bytes(self._view[following : following + length])):
            count, stretches = settling.run(rows_of(self._view[: self._end], start, length))
        self._start += count * length
        like = settling.disposition
        return Settled(like.role, stretches, bool(like.settled), like.state)

    def _take_frame(self, length: int) -> Event | None:
        octets = self._view[self._start : self._start + length]
        frame = decode_frame(octets)
        performative = frame.performative
        if not self._signed_in:
            self._start += length
            self._take_sasl(frame)
            return None
        if frame.kind == SASL_FRAME:
            raise PeerError("a SASL frame after the sign-in was over")
        if isinstance(performative, Transfer):
            return self._take_transfer(octets, frame, performative)
        if isinstance(performative, Disposition) and self._batching:
            settling = settling_of(octets, performative)
            if settling is not None:
                self._settlings.learn(length, settling)
                taken = self._take_settling(settling, length)
                if taken is not None:
                    return taken
        if isinstance(performative, Flow) and self._batching:
            self._flows.learn(length, FlowShape(octets, performative))
        self._start += length
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
                return self._take_begin(channel, performative)
            case Attach():
                return self._take_attach(performative)
            case Flow():
                return self._take_flow(performative)
            case Disposition(role=role, first=first, last=last, settled=settled, state=state):
                return Settled(role, [(first, first if last is None else last)], bool(settled), state)
            case Detach(handle=remote, closed=closed, error=error):
                link = self._remote_link(remote)
                self._forget(link)
                if not link.detached:
                    self._say(Detach(link.handle, bool(closed)))
                return Detached(link.handle, error_text(error))
            case End(error=error):
                for link in list(self.links.values()):
                    self._forget(link)
                self._begun = False
                self._say(End())
                return Ended(error_text(error))
            case Close(error=error):
                if not self._closing:
                    self._say(Close())
                self.closed = True
                return Closed(error_text(error))
            case _:
                raise PeerError(f"{type(performative).__name__} is no performative of a connection")

    def _forget(self, link: Link) -> None:
        if link.partial is not None:
            self._partials -= 1  # its last frame will never come
        if link.remote_handle is not None:
            del self._by_remote[link.remote_handle]
        del self._by_name[link.name, link.role], self.links[link.handle]
        self._layouts.forget()  # some may be this link's, and the next link of this handle need not be the same

    def _take_begin(self, channel: int, begin: Begin) -> Event:
        if self._begun:
            raise PeerError("a second session, where one was agreed")
        self._begun = True
        self._next_incoming_id = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        if self._server:
            self._channel = channel
            self._say(Begin(channel, 0, WINDOW, WINDOW))
        return Begun()

    def _take_attach(self, attach: Attach) -> Event:
        link = self._by_name.get((attach.name, not attach.role))
        if link is None:
            if not self._server or len(self.links) >= MAX_LINKS or attach.handle in self.links:
                raise PeerError(f"a link {attach.name!r} that nobody asked for")
            link = self._add_link(attach.handle, attach.name, not attach.role)
        if attach.handle in self._by_remote or link.remote_handle is not None:
            raise PeerError(f"link {attach.name!r} or its handle {int(attach.handle)} is attached already")
        link.remote_handle = attach.handle
        link.max_message_size = attach.max_message_size or 0
        if link.role is RECEIVER:
            link.delivery_count = attach.initial_delivery_count or 0
        self._by_remote[attach.handle] = link
        return Attached(link.handle, attach)

    def _take_flow(self, flow: Flow) -> Event:
        known = flow.next_incoming_id if flow.next_incoming_id is not None else 0
        window = (known + flow.incoming_window - self._next_outgoing_id) & _SERIAL
        self._remote_window = window if window <= WINDOW else 0
        if flow.handle is None:
            if flow.echo:
                self._say(self._flow())
            return Credited(None)
        link = self._remote_link(flow.handle)
        if link.role is SENDER and flow.link_credit is not None:
            link.credit_limit = ((flow.delivery_count or 0) + flow.link_credit) & _SERIAL
            if flow.drain:  # we never hold messages back, so there is nothing to send with this credit
                link.delivery_count = link.credit_limit
                self._say(self._flow(handle=link.handle, delivery_count=link.delivery_count, link_credit=0, drain=True))
        if flow.echo:
            state = {"delivery_count": link.delivery_count, "link_credit": self._credit(link)}
            self._say(self._flow(handle=link.handle, **state))
        return Credited(link.handle)

    def _take_transfer(self, octets: memoryview, frame: Frame, transfer: Transfer) -> Event | None:
        link = self._remote_link(transfer.handle)
        if link.role is not RECEIVER:
            raise PeerError("a message on a link where we send")
        if transfer.more or link.partial is not None or transfer.aborted:
            self._start += len(octets)
            self._next_incoming_id = (self._next_incoming_id + 1) & _SERIAL
            return self._take_piece(link, transfer, frame.payload)
        if transfer.delivery_id is None:
            raise PeerError("a message without a delivery id")
        body = find_body(frame.payload)
        layout = layout_of(octets, frame, body) if self._batching else None
        if layout is not None:
            self._layouts.learn(layout.length, layout)
            rows = rows_of(self._view[: self._end], self._start, len(octets))
            count = layout.matches(rows)
            return self._deliver(layout, rows[:count], batched=count > 1)
        self._start += len(octets)
        self._count(link, 1)
        message = np.frombuffer(frame.payload, np.uint8).reshape(1, -1)
        ids = np.array([transfer.delivery_id], np.uint32)
        settled = bool(transfer.settled)
        return Deliveries(link.handle, ids, settled, message, body.start, body.length, body.redelivered, False)

    def _take_piece(self, link: Link, transfer: Transfer, payload: memoryview) -> Event | None:
        if link.partial is None:
            if transfer.delivery_id is None:
                raise PeerError("a message without a delivery id")
            link.partial = bytearray()
            link.partial_id = transfer.delivery_id
            link.partial_settled = False
            self._partials += 1
        link.partial_settled |= bool(transfer.settled)
        link.partial += payload
        if len(link.partial) > MAX_MESSAGE_SIZE:
            raise PeerError(f"a message of more than {MAX_MESSAGE_SIZE} bytes")
        if transfer.more and not transfer.aborted:
            return None
        octets, link.partial = link.partial, None
        self._partials -= 1
        link.delivery_count = (link.delivery_count + 1) & _SERIAL
        if transfer.aborted:
            return None
        body = find_body(memoryview(octets))
        message = np.frombuffer(octets, np.uint8).reshape(1, -1)
        ids = np.array([link.partial_id], np.uint32)
        return Deliveries(
            link.handle, ids, link.partial_settled, message, body.start, body.length, body.redelivered, False
        )  # fmt: skip

    def _deliver(self, layout: Layout, rows: Any, *, batched: bool) -> Deliveries:
        link = self._remote_link(layout.transfer.handle)
        self._start += rows.size
        self._count(link, len(rows))
        return Deliveries(
            link.handle,
            layout.ids(rows),
            bool(layout.transfer.settled),
            rows[:, layout.message_start :],
            layout.body.start,
            layout.body.length,
            layout.body.redelivered,
            batched,
        )

    def _count(self, link: Link, deliveries: int) -> None:
        self._next_incoming_id = (self._next_incoming_id + deliveries) & _SERIAL
        link.delivery_count = (link.delivery_count + deliveries) & _SERIAL

    # -- frames out ----------------------------------------------------------------------------------------------

    def _add_link(self, handle: int, name: str, role: bool) -> Link:
        link = self.links[handle] = self._by_name[name, role] = Link(handle, name, role)
        return link

    def _remote_link(self, handle: int) -> Link:
        link = self._by_remote.get(handle)
        if link is None:
            raise PeerError(f"link handle {int(handle)} is not attached")
        return link

    def _flow(self, **link: Any) -> Flow:
        return Flow(self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW, **link)

    def _say(self, performative: Composite, payload: bytes = b"") -> None:
        self._queue(encode_frame(performative, payload, channel=self._channel))

    def _queue(self, octets: bytes) -> None:
        if octets:
            self.outgoing.append(memoryview(octets))


def _capabilities(topic: bool) -> list[str] | None:
    # Brokers that know both kinds of node (Artemis, ActiveMQ) tell them apart by this; the others ignore it.
    return [TOPIC] if topic else None
