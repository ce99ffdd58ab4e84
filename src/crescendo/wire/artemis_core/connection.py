"""What is the state of one Core client connection, and what follows from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and bytes to write queue up
in `outgoing`, where `client_packets` puts them. It reads no clock: the time of silence is only a number here, and the
owner of the socket enforces it. A lost session is never resumed; messages without an answer are sent again by others.
"""

import numpy as np
from msgspec.structs import replace

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core import packets as p
from crescendo.wire.artemis_core.arrivals import Arrivals, large_delivery
from crescendo.wire.artemis_core.client_packets import CREATE_SESSION, ClientPackets
from crescendo.wire.artemis_core.events import (
    Closed,
    Completed,
    Connected,
    CreditRefused,
    Event,
    Granted,
    Refused,
    reason_of,
)
from crescendo.wire.artemis_core.frames import (
    CREATION_CHANNEL,
    HANDSHAKE,
    MAX_FRAME_BYTES,
    PING_CHANNEL,
    SESSION_CHANNEL,
    frame_length,
    open_frame,
)
from crescendo.wire.artemis_core.large_messages import LargeMessages
from crescendo.wire.artemis_core.packet_fields import Packet, read_packet
from crescendo.wire.receive_buffer import ReceiveBuffer
from crescendo.wire.responses import Rejected, Responses


class Connection(ClientPackets):
    """The client's side of a connection with one session."""

    def __init__(
        self,
        session: str,
        *,
        user: str | None = None,
        password: str | None = None,
        client_id: str | None = None,
        version: int = p.LAST_VERSION,
        ttl_ms: int = -1,
        transacted: bool = False,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        batching: bool = True,
    ) -> None:
        super().__init__(version)
        self.closed = False
        self.connected = False
        self._session, self._client_id = session, client_id
        self._user, self._password = user, password
        self._ttl_ms = ttl_ms
        self._transacted = transacted
        self._max_frame_bytes = max_frame_bytes
        self._buffer = ReceiveBuffer()
        self._arrivals = Arrivals(self._buffer, batching=batching)
        self._large = LargeMessages(max_frame_bytes)
        self.outgoing.append(memoryview(HANDSHAKE))
        self.heartbeat()
        self._create_session()

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the views of earlier deliveries."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._buffer.filled(count)

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        buffer = self._buffer
        while not self.closed:
            if self.connected and (run := self._arrivals.take_run()) is not None:
                return run
            length = frame_length(buffer.view, buffer.start, buffer.end, self._max_frame_bytes)
            if length is None or buffer.end - buffer.start < length:
                return None
            event = self._take_frame(buffer.view[buffer.start : buffer.start + length])
            if event is not None:
                return event
        return None

    # -- keeping and ending it -----------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """The broker returns it. The first one also says how long either side may be silent; -1 is forever."""
        self._send(p.PingPacket(self._ttl_ms), PING_CHANNEL)

    def disconnect(self) -> int:
        """End the session, which is answered when everything before it is processed."""
        if self.closed or not self.connected:
            return CREATE_SESSION
        return self._request(p.CloseSession())

    # -- packets in ----------------------------------------------------------------------------------------------

    def _take_frame(self, octets: memoryview) -> Event | None:
        code, reader, channel = open_frame(octets, self._version)
        packet = read_packet(reader, code)
        if isinstance(packet, p.ReceiveMessage) and self.connected and reader.spans is not None:
            return self._arrivals.take_message(octets, packet, reader.spans)
        self._buffer.start += len(octets)
        if channel == CREATION_CHANNEL:
            return self._take_answer_to_creation(packet)
        if isinstance(packet, p.Disconnect):
            return self._close(None)
        if isinstance(packet, p.PingPacket):
            return None
        if not self.connected or channel != SESSION_CHANNEL:
            raise PeerError(f"{type(packet).__name__} on channel {channel}, where it means nothing")
        return self._take_packet(packet, len(octets))

    def _take_packet(self, packet: Packet, frame_bytes: int) -> Event | None:
        match packet:
            case p.NullResponse(correlation=number) if number is not None and number >= 0:
                return Responses(np.array([number], np.int64), False)
            case p.ExceptionPacket(code=code, reason=reason, correlation=number) if number is not None and number >= 0:
                return Rejected(number, reason_of(reason, code))
            case p.ExceptionPacket(code=code, reason=reason):
                return Refused(self._answered(), reason_of(reason, code), code)
            case p.NullResponse() | p.QueueInfo() | p.AddressInfo():
                return Completed(self._answered(), packet)
            case p.ProducerCredits(credits=credits):
                return Granted(credits)
            case p.ProducerCreditsRefused(credits=credits, address=address):
                return CreditRefused(credits, address)
            case p.ReceiveLargeMessage(consumer=consumer):
                self._large.begin(packet, frame_bytes)
                self.grant(consumer, frame_bytes)
            case p.ReceivePart(consumer=consumer):
                message = self._large.add(packet, frame_bytes)
                self.grant(consumer, frame_bytes)  # the broker sends parts only while there is credit
                return None if message is None else large_delivery(message)
            case p.DisconnectConsumer():
                return self._close("it closed the consumer")
            case p.PacketsConfirmed():
                pass
            case _:
                raise PeerError(f"{type(packet).__name__}, which only clients send")
        return None

    def _take_answer_to_creation(self, packet: Packet) -> Event | None:
        match packet:
            case p.SessionCreated(server_version=version) if not self.connected:
                self.connected = True
                return Connected(self._version, version)
            case p.ExceptionPacket(code=p.ErrorCode.INCOMPATIBLE_VERSIONS) if self._version > p.FIRST_VERSION:
                self._version -= 1
                self._create_session()
                return None
            case p.ExceptionPacket(code=code, reason=reason):
                return Refused(CREATE_SESSION, reason_of(reason, code), code)
        raise PeerError(f"{type(packet).__name__} where the answer to a new session was expected")

    def _create_session(self) -> None:
        commits = not self._transacted
        kind = p.CreateSessionV2 if self._version >= p.CLIENT_ID_SINCE else p.CreateSession
        packet = kind(
            self._session,
            SESSION_CHANNEL,
            self._version,
            self._user,
            self._password,
            commits_sends=commits,
            commits_acks=commits,
        )
        if isinstance(packet, p.CreateSessionV2):
            packet = replace(packet, client_id=self._client_id)
        self._send(packet, CREATION_CHANNEL)

    def _answered(self) -> int:
        """The oldest request without an answer."""
        if not self._unanswered:
            raise PeerError("an answer to a request that was not made")
        return self._unanswered.popleft()

    def _close(self, reason: str | None) -> Closed:
        self.closed = True
        return Closed(reason)
