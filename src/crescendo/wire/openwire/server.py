"""How does the server side of an OpenWire connection read a client's commands and answer them?

As much of a server as null servers and tests need: it negotiates, returns the client's commands one by one, and writes
responses, exceptions and dispatched messages. It routes nothing and stores nothing.
"""

from collections import deque

from crescendo.model.errors import PeerError
from crescendo.wire.openwire.control_commands import (
    ExceptionResponse,
    OpenWireCommand,
    Response,
    ShutdownInfo,
    WireFormatInfo,
)
from crescendo.wire.openwire.frames import MAX_FRAME_BYTES, decode_frame, encode_frame, frame_length
from crescendo.wire.openwire.negotiation import (
    FIRST_VERSION,
    LAST_VERSION,
    Agreement,
    Proposal,
    agreed,
    wire_format_info,
)
from crescendo.wire.openwire.structures import Structure, Throwable
from crescendo.wire.receive_buffer import ReceiveBuffer


class ServerConnection:
    """The server's side of a connection."""

    def __init__(
        self, *, version: int = LAST_VERSION, inactivity_ms: int = 0, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.closed = False  # whether the client has ended the connection
        self.agreement: Agreement | None = None
        self.version = FIRST_VERSION  # of what is read and written from here on
        self._proposal = Proposal(version, max_frame_bytes, inactivity_ms)
        self._max_frame_bytes = max_frame_bytes
        self._buffer = ReceiveBuffer()
        self.send(wire_format_info(self._proposal))

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the contents of earlier messages."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._buffer.filled(count)

    def next_command(self) -> OpenWireCommand | None:
        """One command of the client, or None when more bytes are needed."""
        buffer = self._buffer
        while not self.closed:
            length = frame_length(buffer.view, buffer.start, buffer.end, self._max_frame_bytes)
            if length is None or buffer.end - buffer.start < length:
                return None
            command = decode_frame(buffer.view[buffer.start : buffer.start + length], self.version)
            buffer.start += length
            if self.agreement is not None and isinstance(command, OpenWireCommand):
                self.closed = isinstance(command, ShutdownInfo)
                return command
            if self.agreement is not None or not isinstance(command, WireFormatInfo):
                raise PeerError(f"{type(command).__name__} at this point of a connection")
            self.agreement = agreed(self._proposal, command)
            self.version = self.agreement.version
        return None

    def respond(self, command: OpenWireCommand) -> None:
        """Answer a command, if it is to be answered."""
        if command.response_required:
            self.send(Response(correlation_id=command.command_id))

    def refuse(self, command: OpenWireCommand, class_name: str, message: str) -> None:
        self.send(ExceptionResponse(correlation_id=command.command_id, error=Throwable(class_name, message)))

    def send(self, command: Structure) -> None:
        self.outgoing.append(memoryview(encode_frame(command, self.version)))
