"""What is the state of one AMQP 0-9-1 connection, and what follows from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and what must be written
stands in `outgoing`. A client in full; a server as far as a sink or a test needs one: it lets everybody in, opens
channels, reads what clients publish, and leaves every other answer to its owner. It reads no clock: heartbeats are a
number here, and whoever owns the socket watches them.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.batch import ACK, Layout, Octets, PublishBatch, Tags, acks, layout_of, rows_of
from crescendo.wire.amqp091.confirms import Confirms
from crescendo.wire.amqp091.content import Assembly, Whole, announces_content, checked_header, whole_content
from crescendo.wire.amqp091.events import (
    Blocked,
    ChannelClosed,
    ChannelOpened,
    Closed,
    Confirmed,
    Deliveries,
    Event,
    Opened,
    Refused,
    Returned,
    Said,
    Unblocked,
)
from crescendo.wire.amqp091.frames import (
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD_FRAME,
    PROTOCOL_HEADER,
    Frame,
    decode_frame,
    encode_content,
    encode_method_frame,
    frame_length,
)
from crescendo.wire.amqp091.handshake import (
    ClientHandshake,
    Limits,
    RefusedError,
    ServerHandshake,
    SignIn,
    check_greeting,
    check_header,
)
from crescendo.wire.amqp091.methods import (
    SAID_BY_CLIENTS,
    SAID_BY_SERVERS,
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    Content,
    Method,
    decode_method,
)
from crescendo.wire.amqp091.properties import NO_PROPERTIES, Properties

_BUFFER_BYTES = 512 * 1024
_FRAMES_IN_BUFFER = 4  # a message that comes whole is up to three frames, and there must be room to read on
_CONNECTION_CLASS = 10
_PROTOCOL_BYTES = 8
_CHANNEL_OPEN = ChannelOpen.code.to_bytes(4, "big")


@dataclass(slots=True)
class Channel:
    """One channel and how far it is."""

    number: int
    opened: bool = False
    closing: bool = False  # we have said so; until the answer comes, nothing on it matters
    flowing: bool = True
    confirms: Confirms | None = None
    assembly: Assembly | None = None
    received: int = 0  # as a server: messages that were published on it


class Connection:
    """One side of a connection."""

    def __init__(
        self,
        *,
        virtual_host: str = "/",
        sign_in: SignIn | None = None,
        server: bool = False,
        limits: Limits = Limits(),  # noqa: B008 - a frozen value
        name: str = "",
        batching: bool = True,
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.channels: dict[int, Channel] = {}
        self.greeted = False  # the other side has said something that we understand
        self.closed = False
        self.blocked: str | None = None
        self._server = server
        self._batching = batching
        self._frame_max = limits.frame_max  # what we take from the first byte on, and never more than the buffer holds
        self._buffer = bytearray(max(_BUFFER_BYTES, _FRAMES_IN_BUFFER * limits.frame_max))
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._closing = False
        self._layout: Layout | None = None
        self._handshake: ClientHandshake | ServerHandshake
        if server:
            self._handshake = ServerHandshake(limits)
        else:
            self._handshake = ClientHandshake(sign_in, virtual_host, limits, name)
            self._queue(PROTOCOL_HEADER)

    @property
    def limits(self) -> Limits:
        """What both sides agreed on; before that, what we offer."""
        return self._handshake.limits

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier deliveries are void from here on."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and len(self._buffer) - self._end < self._frame_max:
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
                if not self.greeted:
                    if not self._take_greeting():
                        return None
                    continue
                length = frame_length(self._view[: self._end], self._start, self._frame_max)
                if length is None or self._end - self._start < length:
                    return None
                before = self._start
                event = self._take_run() or self._take(length)
                if event is not None or self._start == before:
                    return event
        except RefusedError as refusal:
            self.closed = True
            return Refused(str(refusal))
        return None

    # -- things to say -------------------------------------------------------------------------------------------

    def open_channel(self, number: int = 1) -> None:
        self.channels[number] = Channel(number)
        self.say(number, ChannelOpen())

    def close_channel(self, number: int, code: int = 200, reason: str = "") -> None:
        self.say(number, ChannelClose(code, reason))
        self.channels[number].closing = True

    def say(self, channel: int, method: Method) -> None:
        """Queue a method that needs no bookkeeping here: declare, bind, qos, consume, ack, ..."""
        self._queue(encode_method_frame(channel, method))

    def select_confirms(self, channel: int) -> None:
        """Ask for publisher confirms. From here on messages on this channel are numbered from 1."""
        self.channels[channel].confirms = Confirms()
        self.say(channel, ConfirmSelect())

    def publishable(self, channel: int) -> bool:
        """Whether the other side lets us publish on this channel now."""
        state = self.channels.get(channel)
        return state is not None and state.opened and state.flowing and not state.closing and self.blocked is None

    def unconfirmed(self, channel: int) -> int:
        confirms = self.channels[channel].confirms
        return confirms.open if confirms is not None else 0

    def publish_batch(self, batch: PublishBatch, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(count))
        self._count_published(batch.channel, count)

    def publish(self, channel: int, method: BasicPublish, body: bytes, properties: Properties = NO_PROPERTIES) -> None:
        """Queue one message by the scalar path, in as many frames as the limit demands."""
        self.send_content(channel, method, body, properties)
        self._count_published(channel, 1)

    def send_content(self, channel: int, method: Content, body: bytes, properties: Properties = NO_PROPERTIES) -> None:
        """Queue a method with a message; as a server: a delivery, a return, an answer to get."""
        self._queue(encode_content(channel, method, properties, body, self.limits.frame_max))

    def close(self, code: int = 200, reason: str = "") -> None:
        """Say good-bye."""
        if not self.closed and not self._closing and self.greeted:
            self.say(0, ConnectionClose(code, reason))
            self._closing = True

    def heartbeat(self) -> None:
        if self._handshake.done:
            self._queue(HEARTBEAT)

    # -- frames in -----------------------------------------------------------------------------------------------

    def _take_greeting(self) -> bool:
        if self._end - self._start < _PROTOCOL_BYTES:
            return False
        octets = bytes(self._view[self._start : self._start + _PROTOCOL_BYTES])
        if isinstance(self._handshake, ServerHandshake):
            self._start += _PROTOCOL_BYTES
            try:
                check_header(octets)
            except RefusedError:
                self._queue(PROTOCOL_HEADER)  # tells the other side what we would have understood
                raise
            self.say(0, self._handshake.greeting())
        else:
            check_greeting(octets)
        self.greeted = True
        return True

    def _take_run(self) -> Event | None:
        """Recognise messages that look like the last one; the batch path."""
        layout = self._layout
        if layout is None or self._end - self._start < layout.length or self._closing:
            return None
        channel = self.channels[layout.channel]
        if channel.closing or channel.assembly is not None:
            return None
        rows = rows_of(self._view[: self._end], self._start, layout.length)
        count = layout.matches(rows)
        return self._deliver_rows(channel, layout, rows[:count], batched=True) if count else None

    def _take(self, length: int) -> Event | None:
        octets = self._view[self._start : self._start + length]
        if octets[0] == METHOD_FRAME and not self._closing:
            channel = self.channels.get(int.from_bytes(octets[1:3], "big"))
            if channel is not None and channel.opened and not channel.closing and channel.assembly is None:
                if announces_content(octets):
                    whole = whole_content(self._view[: self._end], self._start, self._start + length, self._frame_max)
                    if whole is True:
                        return None  # nothing is taken until the rest is there
                    if isinstance(whole, Whole):
                        return self._take_whole(channel, octets, whole)
                elif length == len(ACK) and channel.confirms is not None and self._batching:
                    tags, multiples = acks(self._view[: self._end], self._start)
                    if len(tags):
                        self._start += len(tags) * length
                        return Confirmed(channel.number, channel.confirms.run(tags, multiples), True)
        self._start += length
        return self._take_frame(decode_frame(octets))

    def _take_whole(self, channel: Channel, first: memoryview, whole: Whole) -> Event:
        """A message that lies in the buffer in one piece: no copy, and more like it may follow."""
        method = self._content_method(decode_method(decode_frame(first).payload))
        header = checked_header(decode_frame(self._view[whole.method_end : whole.header_end]).payload)
        octets = self._view[self._start : whole.end]
        if header.body_size:
            decode_frame(octets[whole.header_end - self._start :])
        layout = layout_of(octets, channel.number, method, header.properties, header.body_size)
        self._layout = layout if self._batching else None
        if self._layout is not None:
            rows = rows_of(self._view[: self._end], self._start, len(octets))
            count = self._layout.matches(rows)
            return self._deliver_rows(channel, self._layout, rows[:count], batched=count > 1)
        body_start = len(octets) - 1 - header.body_size if header.body_size else len(octets)
        body = np.frombuffer(octets, np.uint8)[body_start : body_start + header.body_size].reshape(1, -1)
        self._start = whole.end
        return self._deliver(channel, method, header.properties, body, None, batched=False)

    def _take_frame(self, frame: Frame) -> Event | None:
        if frame.kind == HEARTBEAT_FRAME:
            if frame.channel or len(frame.payload):
                raise PeerError("a heartbeat with a channel or a content")
            return None  # whoever watches the socket has seen the bytes
        if frame.channel == 0:
            if frame.kind != METHOD_FRAME:
                raise PeerError("a message on channel 0")
            return self._take_connection_method(decode_method(frame.payload))
        if self._closing:
            return None
        if not self._handshake.done:
            raise PeerError(f"something on channel {frame.channel} before the connection was open")
        channel = self._channel(frame)
        if frame.kind == METHOD_FRAME:
            return self._take_channel_method(channel, decode_method(frame.payload))
        if channel.closing:
            return None
        return self._take_piece(channel, frame)

    def _take_piece(self, channel: Channel, frame: Frame) -> Event | None:
        assembly = channel.assembly
        if assembly is None:
            raise PeerError("a content header or body without a method before it")
        if not assembly.take(frame) or assembly.header is None:
            return None
        channel.assembly = None
        body = np.frombuffer(assembly.body, np.uint8).reshape(1, -1)
        return self._deliver(channel, assembly.method, assembly.header.properties, body, None, batched=False)

    def _deliver_rows(self, channel: Channel, layout: Layout, rows: Octets, *, batched: bool) -> Event:
        self._start += rows.size
        bodies = rows[:, layout.body_start : -1]
        return self._deliver(channel, layout.method, layout.properties, bodies, layout.tags(rows), batched=batched)

    def _deliver(
        self, channel: Channel, method: Content, properties: Properties, bodies: Octets, tags: Tags | None, *,
        batched: bool,
    ) -> Event:  # fmt: skip
        if isinstance(method, BasicReturn):
            return Returned(channel.number, method, properties, bodies.tobytes())
        if isinstance(method, BasicPublish):
            first = channel.received + 1
            channel.received += len(bodies)
            tags = np.arange(first, channel.received + 1, dtype=np.uint64)
        elif tags is None:
            tags = np.array([method.delivery_tag], np.uint64)
        return Deliveries(channel.number, tags, bodies, method, properties, batched)

    # -- methods in ----------------------------------------------------------------------------------------------

    def _take_connection_method(self, method: Method) -> Event | None:
        if method.code >> 16 != _CONNECTION_CLASS:
            raise PeerError(f"{type(method).__name__} on channel 0")
        match method:
            case ConnectionClose(reply_code=code, reply_text=text):
                self.say(0, ConnectionCloseOk())
                self.closed = True
                return Closed(code, text)
            case ConnectionCloseOk() if self._closing:
                self.closed = True
                return Closed(200, "")
            case _ if self._closing:
                return None
            case _ if not self._handshake.done:
                for answer in self._handshake.answer(method):
                    self.say(0, answer)
                self._frame_max = self._handshake.limits.frame_max
                return Opened(self._handshake.remote_properties) if self._handshake.done else None
            case ConnectionBlocked(reason=reason) if not self._server:
                self.blocked = reason
                return Blocked(reason)
            case ConnectionUnblocked() if not self._server:
                self.blocked = None
                return Unblocked()
            case _:
                raise PeerError(f"{type(method).__name__} on a connection that is open")

    def _take_channel_method(self, channel: Channel, method: Method) -> Event | None:
        if method.code >> 16 == _CONNECTION_CLASS:
            raise PeerError(f"{type(method).__name__} on channel {channel.number}")
        if channel.closing and not isinstance(method, ChannelClose | ChannelCloseOk):
            return None
        if channel.assembly is not None:
            raise PeerError(f"{type(method).__name__} in the middle of a message")
        self._check_role(method)
        match method:
            case ChannelClose(reply_code=code, reply_text=text):
                self.say(channel.number, ChannelCloseOk())
                if channel.closing:
                    return None  # both at once; the answer to ours is still to come
                self._forget(channel)
                return ChannelClosed(channel.number, code, text)
            case ChannelCloseOk() if channel.closing:
                self._forget(channel)
                return ChannelClosed(channel.number, 200, "")
            case ChannelOpen() | ChannelOpenOk() if not channel.opened:
                channel.opened = True
                if self._server:
                    self.say(channel.number, ChannelOpenOk())
                return ChannelOpened(channel.number)
            case _ if not channel.opened:
                raise PeerError(f"{type(method).__name__} on channel {channel.number} before it was open")
            case ChannelCloseOk() | ChannelOpen() | ChannelOpenOk():
                raise PeerError(f"{type(method).__name__} that nobody asked for")
            case ChannelFlow(active=active):
                channel.flowing = active
                self.say(channel.number, ChannelFlowOk(active))
                return Said(channel.number, method)
            case BasicAck() | BasicNack() if not self._server:
                return self._take_confirm(channel, method)
            case BasicDeliver() | BasicPublish() | BasicReturn() | BasicGetOk():
                channel.assembly = Assembly(method)
                return None
            case _:
                return Said(channel.number, method)

    def _take_confirm(self, channel: Channel, method: BasicAck | BasicNack) -> Event:
        if channel.confirms is None:
            raise PeerError("a publisher confirm that nobody asked for")
        confirm = channel.confirms.up_to if method.multiple else channel.confirms.one
        return Confirmed(channel.number, confirm(method.delivery_tag), isinstance(method, BasicAck))

    def _content_method(self, method: Method) -> Content:
        self._check_role(method)
        if not isinstance(method, BasicDeliver | BasicPublish | BasicReturn | BasicGetOk):
            raise PeerError(f"{type(method).__name__} with a message")
        return method

    def _check_role(self, method: Method) -> None:
        allowed = SAID_BY_CLIENTS if self._server else SAID_BY_SERVERS
        if type(method) not in allowed:
            raise PeerError(f"{type(method).__name__}, which only {'servers' if self._server else 'clients'} say")

    def _channel(self, frame: Frame) -> Channel:
        channel = self.channels.get(frame.channel)
        if channel is None:
            opens = self._server and frame.kind == METHOD_FRAME and frame.payload[:4] == _CHANNEL_OPEN
            if not opens or frame.channel > self.limits.channel_max:
                raise PeerError(f"something on channel {frame.channel}, which is not open")
            channel = self.channels[frame.channel] = Channel(frame.channel)
        return channel

    def _forget(self, channel: Channel) -> None:
        del self.channels[channel.number]
        self._layout = None  # it may be this channel's

    # -- bytes out -----------------------------------------------------------------------------------------------

    def _count_published(self, channel: int, count: int) -> None:
        confirms = self.channels[channel].confirms
        if confirms is not None:
            confirms.published += count

    def _queue(self, octets: bytes) -> None:
        self.outgoing.append(memoryview(octets))
