"""How does the server side of a Core connection read a client's packets and answer them?

As much of a server as null servers and tests need: it creates a session, returns the client's packets one by one, and
writes responses, exceptions and messages. It routes nothing and stores nothing.
"""

from collections import deque

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core import packets as p
from crescendo.wire.artemis_core.frames import (
    CREATION_CHANNEL,
    HANDSHAKE,
    MAX_FRAME_BYTES,
    PING_CHANNEL,
    SESSION_CHANNEL,
    decode_frame,
    encode_frame,
    frame_length,
)
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.receive_buffer import ReceiveBuffer


class ServerConnection:
    """The server's side of a connection. It answers pings and the creation of a session by itself."""

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.closed = False  # whether the client has ended its session
        self.session: p.CreateSession | None = None
        self.version = p.LAST_VERSION  # of what is read and written from here on
        self._max_frame_bytes = max_frame_bytes
        self._greeted = False
        self._buffer = ReceiveBuffer()

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the bodies of earlier messages."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._buffer.filled(count)

    def next_packet(self) -> Packet | None:
        """One packet of the client's session, or None when more bytes are needed."""
        buffer = self._buffer
        if not self._greeted and not self._take_handshake():
            return None
        while not self.closed:
            length = frame_length(buffer.view, buffer.start, buffer.end, self._max_frame_bytes)
            if length is None or buffer.end - buffer.start < length:
                return None
            packet, channel = decode_frame(buffer.view[buffer.start : buffer.start + length], self.version)
            buffer.start += length
            if isinstance(packet, p.PingPacket):
                self.send(packet, PING_CHANNEL)
            elif isinstance(packet, p.CreateSession) and channel == CREATION_CHANNEL and self.session is None:
                self._create(packet)
            elif self.session is None or channel != self.session.channel:
                raise PeerError(f"{type(packet).__name__} on channel {channel} at this point of a connection")
            else:
                self.closed = isinstance(packet, p.CloseSession)
                return packet
        return None

    def respond(self, packet: Packet) -> None:
        """Answer a packet, if it is to be answered, as a broker does that has every queue already."""
        match packet:
            case p.SendMessage(response_required=True, correlation=number):
                self.send(p.NullResponse(number))
            case p.QueryQueue(queue=queue) | p.CreateConsumer(queue=queue):
                self.send(p.QueueInfo(exists=True, durable=True, address=queue, name=queue, creates_queues=True))
            case p.QueryAddress():
                self.send(p.AddressInfoV5(exists=True, creates_queues=True, creates_addresses=True))
            case p.RequestCredits(credits=credits, address=address):
                self.send(p.ProducerCredits(credits, address))
            case p.CloseSession() | p.CloseConsumer() | p.DeleteQueue() | p.Commit() | p.Rollback() | p.StopSession():
                self.send(p.NullResponse(p.NO_CORRELATION))
            case (
                p.CreateQueue(response_required=True)
                | p.CreateAddress(response_required=True)
                | p.Acknowledge(response_required=True)
                | p.AcknowledgeOne(response_required=True)
            ):
                self.send(p.NullResponse(p.NO_CORRELATION))

    def refuse(self, packet: Packet, code: int, reason: str) -> None:
        number = packet.correlation if isinstance(packet, p.SendMessage) else None
        self.send(p.ExceptionPacket(code, reason, number))

    def send(self, packet: Packet, channel: int = SESSION_CHANNEL) -> None:
        self.outgoing.append(memoryview(encode_frame(packet, self.version, channel)))

    def _take_handshake(self) -> bool:
        buffer = self._buffer
        if buffer.waiting < len(HANDSHAKE):
            return False
        begin = bytes(buffer.view[buffer.start : buffer.start + len(HANDSHAKE)])
        if begin != HANDSHAKE:
            raise PeerError(f"the client begins with {begin!r} instead of {HANDSHAKE!r}")
        buffer.start += len(HANDSHAKE)
        self._greeted = True
        return True

    def _create(self, packet: p.CreateSession) -> None:
        if not p.FIRST_VERSION <= packet.version <= p.LAST_VERSION:
            self.send(p.ExceptionPacket(p.ErrorCode.INCOMPATIBLE_VERSIONS, "incompatible version"), CREATION_CHANNEL)
            return
        self.session, self.version = packet, packet.version
        self.send(p.SessionCreated(p.LAST_VERSION), CREATION_CHANNEL)
