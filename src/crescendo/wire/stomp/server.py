"""How does the server side of a STOMP connection read a client's frames and answer them?

As much of a server as null sinks and tests need: it negotiates a version, returns the client's frames one by one, and
writes CONNECTED, MESSAGE, RECEIPT and ERROR. It routes nothing and stores nothing.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from crescendo.model.errors import PeerError
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.frames import MAX_BODY_BYTES, MAX_HEADER_BYTES, Frame, LocatedFrame, encode_frame
from crescendo.wire.stomp.handshake import (
    VERSIONS,
    Agreement,
    Heartbeats,
    agreed,
    choose_version,
    heartbeats_of,
)
from crescendo.wire.stomp.stream import Stream

_COMMANDS = {
    "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT",
}  # fmt: skip


class ServerConnection:
    """The server's side of a connection."""

    def __init__(
        self,
        *,
        versions: Sequence[Version] = VERSIONS,
        heartbeats: Heartbeats = Heartbeats(),  # noqa: B008 - frozen
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.closed = False
        self.agreement: Agreement | None = None
        self._versions = tuple(versions)
        self._heartbeats = heartbeats
        self._stream = Stream(run_id_headers={}, max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the bodies of earlier frames."""
        return self._stream.receive_buffer()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._stream.received(count)

    def next_frame(self) -> Frame | None:
        """One frame of the client, or None when more bytes are needed. CONNECT is answered before it is returned."""
        if self.closed:
            return None
        found = self._stream.next()
        if not isinstance(found, LocatedFrame):
            return None
        frame = found.frame
        if self.agreement is None:
            self._handshake(frame)
        elif frame.command not in _COMMANDS:
            raise PeerError(f"{frame.command[:40]!r} is not a command of a STOMP client")
        return frame

    def message(self, headers: Mapping[str, str], body: bytes) -> None:
        self._send_frame("MESSAGE", headers, body, sized=True)

    def receipt(self, receipt_id: str) -> None:
        self._send_frame("RECEIPT", {"receipt-id": receipt_id})

    def error(self, message: str, body: str = "", **more: str) -> None:
        """Send an ERROR; nothing may follow it."""
        self._send_frame("ERROR", {"message": message, **more}, body.encode(), sized=True)
        self.closed = True

    def _handshake(self, frame: Frame) -> None:
        if frame.command not in {"CONNECT", "STOMP"}:
            raise PeerError(f"{frame.command[:40]!r} where CONNECT was expected")
        version = choose_version(frame.headers.get("accept-version"), self._versions)
        if version is None:
            known = ",".join(self._versions)
            self.error(f"Supported protocol versions are {known}", version=known)
            return
        self.agreement = agreed(version, self._heartbeats, heartbeats_of(frame.headers.get("heart-beat")))
        self._stream.set_version(version, {})
        answer = {} if version is Version.V1_0 else {"version": version.value, "heart-beat": str(self._heartbeats)}
        self._send_frame("CONNECTED", answer)

    def _send_frame(self, command: str, headers: Mapping[str, str], body: bytes = b"", *, sized: bool = False) -> None:
        octets = encode_frame(command, headers, body, version=self._stream.version, sized=sized)
        self.outgoing.append(memoryview(octets))
