"""What is the state of one AMQP 0-9-1 connection, and which events follow from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and bytes to write are queued
in `outgoing`. Implements the client in full, and as much of a server as a sink or a test needs: it accepts every
client, opens channels, reads published messages, and leaves all other answers to its owner. Reads no clock: it only
holds the heartbeat interval, and the owner of the socket enforces it.
"""

from collections import deque

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.arrivals import Arrivals
from crescendo.wire.amqp091.batch import PublishBatch
from crescendo.wire.amqp091.channel import Channel
from crescendo.wire.amqp091.connection_methods import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionMethod,
    ConnectionUnblocked,
)
from crescendo.wire.amqp091.events import Blocked, ChannelClosed, Closed, Event, Opened, Refused, Unblocked
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
    HandshakeRefusedError,
    Limits,
    ServerHandshake,
    SignIn,
    check_first_bytes,
    check_header,
)
from crescendo.wire.amqp091.method_table import CODE_BYTES, CODES, decode_method
from crescendo.wire.amqp091.methods import BasicPublish, ChannelOpen, Content, Method
from crescendo.wire.amqp091.properties import NO_PROPERTIES, Properties
from crescendo.wire.frame_buffer import FrameBuffer

_FRAMES_IN_BUFFER = 4  # a complete message is up to three frames, and there must be room for the next read
_PROTOCOL_BYTES = 8
_CHANNEL_OPEN = CODES[ChannelOpen].to_bytes(CODE_BYTES, "big")


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
        self.protocol_agreed = False  # the peer's first bytes are AMQP 0-9-1
        self.closed = False
        self.blocked: str | None = None
        self._server = server
        self._buffer = FrameBuffer(limits.frame_max, frames=_FRAMES_IN_BUFFER)  # the agreed limit is never above ours
        self._arrivals = Arrivals(self._buffer, server=server, batching=batching)
        self._closing = False
        self._handshake: ClientHandshake | ServerHandshake
        if server:
            self._handshake = ServerHandshake(limits)
        else:
            self._handshake = ClientHandshake(sign_in, virtual_host, limits, name)
            self._queue(PROTOCOL_HEADER)

    @property
    def limits(self) -> Limits:
        """The negotiated limits; before tuning, those that we offer."""
        return self._handshake.limits

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
                if not self.protocol_agreed:
                    if not self._take_first_bytes():
                        return None
                    continue
                length = frame_length(buffer.view[: buffer.end], buffer.start, buffer.frame_max)
                if length is None or buffer.end - buffer.start < length:
                    return None
                before = buffer.start
                event = (not self._closing and self._arrivals.take_run(self.channels)) or self._take(length)
                if event is not None or buffer.start == before:
                    return event
        except HandshakeRefusedError as refusal:
            self.closed = True
            return Refused(str(refusal))
        return None

    # -- sending -------------------------------------------------------------------------------------------------

    def open_channel(self, number: int = 1) -> None:
        self._new_channel(number).send(ChannelOpen())

    def close_channel(self, number: int, code: int = 200, reason: str = "") -> None:
        self.channels[number].close(code, reason)

    def send(self, channel: int, method: Method) -> None:
        """Queue a method that changes no state here: declare, bind, qos, consume, ack, ..."""
        self._queue(encode_method_frame(channel, method))

    def select_confirms(self, channel: int) -> None:
        """Request publisher confirms. From here on, messages on this channel are numbered from 1."""
        self.channels[channel].select_confirms()

    def publishable(self, channel: int) -> bool:
        """Whether the peer lets us publish on this channel now."""
        state = self.channels.get(channel)
        return state is not None and state.publishable and self.blocked is None

    def unconfirmed(self, channel: int) -> int:
        confirms = self.channels[channel].confirms
        return confirms.unconfirmed if confirms is not None else 0

    def publish_batch(self, batch: PublishBatch, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(count))
        self.published(batch, count)

    def published(self, batch: PublishBatch, count: int) -> None:
        """Record that `count` messages of a batch were written."""
        self.channels[batch.channel].count_published(count)

    def publish(self, channel: int, method: BasicPublish, body: bytes, properties: Properties = NO_PROPERTIES) -> None:
        """Queue one message through the scalar path, split to the maximum frame size."""
        self.send_content(channel, method, body, properties)
        self.channels[channel].count_published(1)

    def send_content(self, channel: int, method: Content, body: bytes, properties: Properties = NO_PROPERTIES) -> None:
        """Queue a method with content; as a server: a delivery, a return, or the answer to get."""
        self._queue(encode_content(channel, method, properties, body, self.limits.frame_max))

    def close(self, code: int = 200, reason: str = "") -> None:
        """Start the close handshake."""
        if not self.closed and not self._closing and self.protocol_agreed:
            self.send(0, ConnectionClose(code, reason))
            self._closing = True

    def heartbeat(self) -> None:
        if self._handshake.done:
            self._queue(HEARTBEAT)

    # -- receiving -----------------------------------------------------------------------------------------------

    def _take_first_bytes(self) -> bool:
        buffer = self._buffer
        if buffer.end - buffer.start < _PROTOCOL_BYTES:
            return False
        octets = bytes(buffer.view[buffer.start : buffer.start + _PROTOCOL_BYTES])
        if isinstance(self._handshake, ServerHandshake):
            buffer.start += _PROTOCOL_BYTES
            try:
                check_header(octets)
            except HandshakeRefusedError:
                self._queue(PROTOCOL_HEADER)  # tells the peer which protocol we speak
                raise
            self.send(0, self._handshake.start())
        else:
            check_first_bytes(octets)
        self.protocol_agreed = True
        return True

    def _take(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        if octets[0] == METHOD_FRAME and not self._closing:
            channel = self.channels.get(int.from_bytes(octets[1:3], "big"))
            if channel is not None and channel.between_messages:
                taken = self._arrivals.take_method(channel, octets)
                if taken is True:
                    return None
                if taken is not False:
                    return taken
        buffer.start += length
        return self._take_frame(decode_frame(octets))

    def _take_frame(self, frame: Frame) -> Event | None:
        if frame.kind == HEARTBEAT_FRAME:
            if frame.channel or len(frame.payload):
                raise PeerError("a heartbeat with a channel or a payload")
            return None  # the owner of the socket has seen the bytes
        if frame.channel == 0:
            if frame.kind != METHOD_FRAME:
                raise PeerError("content on channel 0")
            return self._take_connection_method(decode_method(frame.payload))
        if self._closing:
            return None
        if not self._handshake.done:
            raise PeerError(f"a frame on channel {frame.channel} before the connection is open")
        channel = self._channel(frame)
        event = (
            channel.take_method(decode_method(frame.payload))
            if frame.kind == METHOD_FRAME
            else channel.take_content_frame(frame)
        )
        if isinstance(event, ChannelClosed):
            del self.channels[channel.number]
            self._arrivals.forget()
        return event

    def _take_connection_method(self, method: Method) -> Event | None:
        if not isinstance(method, ConnectionMethod):
            raise PeerError(f"{type(method).__name__} on channel 0")
        match method:
            case ConnectionClose(reply_code=code, reply_text=text):
                self.send(0, ConnectionCloseOk())
                self.closed = True
                return Closed(code, text)
            case ConnectionCloseOk() if self._closing:
                self.closed = True
                return Closed(200, "")
            case _ if self._closing:
                return None
            case _ if not self._handshake.done:
                for answer in self._handshake.answer(method):
                    self.send(0, answer)
                self._buffer.frame_max = self._handshake.limits.frame_max
                return Opened(self._handshake.remote_properties) if self._handshake.done else None
            case ConnectionBlocked(reason=reason) if not self._server:
                self.blocked = reason
                return Blocked(reason)
            case ConnectionUnblocked() if not self._server:
                self.blocked = None
                return Unblocked()
            case _:
                raise PeerError(f"{type(method).__name__} on an open connection")

    def _channel(self, frame: Frame) -> Channel:
        channel = self.channels.get(frame.channel)
        if channel is None:
            opens = self._server and frame.kind == METHOD_FRAME and frame.payload[:4] == _CHANNEL_OPEN
            if not opens or frame.channel > self.limits.channel_max:
                raise PeerError(f"a frame on channel {frame.channel}, which is not open")
            channel = self._new_channel(frame.channel)
        return channel

    def _new_channel(self, number: int) -> Channel:
        channel = self.channels[number] = Channel(number, self.outgoing, server=self._server)
        return channel

    # -- bytes out -----------------------------------------------------------------------------------------------

    def _queue(self, octets: bytes) -> None:
        self.outgoing.append(memoryview(octets))
