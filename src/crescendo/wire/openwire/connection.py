"""What is the state of one OpenWire client connection, and what follows from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and bytes to write queue up
in `outgoing`, where `client_commands` puts them. It reads no clock: the time of silence is only a number here, and the
owner of the socket enforces it.
"""

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.openwire import control_commands as c
from crescendo.wire.openwire.arrivals import DISPATCH_TYPE, Arrivals
from crescendo.wire.openwire.client_commands import SESSION, ClientCommands
from crescendo.wire.openwire.events import Closed, Completed, Connected, Event, Refused, Released, reason_of
from crescendo.wire.openwire.frames import LENGTH_BYTES, MAX_FRAME_BYTES, frame_length
from crescendo.wire.openwire.identifiers import (
    ConnectionId,
    ProducerId,
    SessionId,
)
from crescendo.wire.openwire.negotiation import (
    LAST_VERSION,
    Agreement,
    Proposal,
    agreed,
    wire_format_info,
)
from crescendo.wire.openwire.structures import Structure
from crescendo.wire.receive_buffer import ReceiveBuffer
from crescendo.wire.responses import Rejected, Responses


class Connection(ClientCommands):
    """The client's side of a connection."""

    def __init__(
        self,
        connection_id: str,
        *,
        host: str = "",
        user: str | None = None,
        password: str | None = None,
        client_id: str | None = None,
        version: int = LAST_VERSION,
        inactivity_ms: int = 0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        batching: bool = True,
    ) -> None:
        super().__init__(connection_id, client_id or connection_id)
        self.closed = False
        self.agreement: Agreement | None = None
        self._user, self._password = user, password
        self._proposal = Proposal(version, max_frame_bytes, inactivity_ms)
        self._max_frame_bytes = max_frame_bytes
        self._broker = ""
        self._connecting: int | None = None  # the id of the command that waits for the broker's consent
        self._buffer = ReceiveBuffer()
        self._arrivals = Arrivals(self._buffer, batching=batching)
        self._send(wire_format_info(self._proposal, host))

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the views of earlier deliveries."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._buffer.filled(count)

    @property
    def undecoded_bytes(self) -> int:
        return self._buffer.waiting

    @property
    def begins_with_message(self) -> bool:
        """Whether the next frame, or what has arrived of it, is a message."""
        return self.agreement is not None and self._arrivals.begins_with_dispatch

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        buffer = self._buffer
        while not self.closed:
            if self.agreement is not None and (run := self._arrivals.take_run()) is not None:
                return run
            length = frame_length(buffer.view, buffer.start, buffer.end, self._max_frame_bytes)
            if length is None or buffer.end - buffer.start < length:
                return None
            octets = buffer.view[buffer.start : buffer.start + length]
            event = (
                self._arrivals.take_dispatch(octets, self._version)
                if self.agreement is not None and octets[LENGTH_BYTES] == DISPATCH_TYPE
                else self._take_command(self._arrivals.take_command(octets, self._version))
            )
            if event is not None:
                return event
        return None

    # -- keeping and ending it -----------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        if self.agreement is not None:
            self._send(c.KeepAliveInfo())

    def disconnect(self) -> int:
        """Remove the connection, which is answered when everything before it is processed, and end it."""
        if self.closed or self._connecting is None:
            return 0
        command_id = self._remove(ConnectionId(self.connection_id))
        self._send(c.ShutdownInfo())
        return command_id

    # -- commands in ---------------------------------------------------------------------------------------------

    def _take_command(self, command: Structure) -> Event | None:
        if self.agreement is None:
            self._take_wire_format(command)
            return None
        match command:
            case c.ExceptionResponse(correlation_id=answered, error=error):
                return self._failed(answered, reason_of(error))
            case c.Response(correlation_id=answered):
                return self._answered(answered)
            case c.KeepAliveInfo(response_required=True):
                self._send(c.KeepAliveInfo())
            case c.BrokerInfo(name=name):
                self._broker = name or ""
            case c.ProducerAck(producer_id=ProducerId(value=number), size_bytes=size_bytes):
                return Released(number, size_bytes)
            case c.ConnectionError(error=error):
                return self._close(reason_of(error))
            case c.ConsumerControl(close=True):
                return self._close("it closed the consumer")
            case c.ConnectionControl(close=True) | c.ConnectionControl(exit=True) | c.ShutdownInfo():
                return self._close(None)
            case c.ConsumerControl() | c.ConnectionControl() | c.KeepAliveInfo() | c.ProducerAck():
                pass
            case _:
                raise PeerError(f"{type(command).__name__}, which only clients send")
        return None

    def _take_wire_format(self, command: Structure) -> None:
        if not isinstance(command, c.WireFormatInfo):
            raise PeerError(f"{type(command).__name__} where WireFormatInfo was expected; is this an OpenWire port?")
        self.agreement = agreed(self._proposal, command)
        self._version = self.agreement.version
        self._max_frame_bytes = self.agreement.max_frame_bytes
        self._connecting = self._next_command_id()
        connection = ConnectionId(self.connection_id)
        self._send(c.ConnectionInfo(self._connecting, True, connection, self._client_id, self._password, self._user))

    def _answered(self, command_id: int) -> Event:
        if command_id >= 0:
            return Responses(np.array([command_id], np.int64), False)
        if command_id == self._connecting and self.agreement is not None:
            self._send(c.SessionInfo(session_id=SessionId(self.connection_id, SESSION)))
            return Connected(self.agreement, self._broker)
        return Completed(command_id)

    def _failed(self, command_id: int, reason: str) -> Event:
        return Rejected(command_id, reason) if command_id >= 0 else Refused(command_id, reason)

    def _close(self, reason: str | None) -> Closed:
        self.closed = True
        return Closed(reason)
