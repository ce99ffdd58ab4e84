"""What does the other end of a STOMP connection need, to take what a client says and to answer it?

As much of a server as null sinks and tests need: it agrees on a version, hands out the client's frames one by one, and
writes CONNECTED, MESSAGE, RECEIPT and ERROR. It routes nothing and remembers nothing.
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
    heartbeats_of,
    version_chosen,
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
        self._stream = Stream(runs_of={}, max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Bodies of earlier frames are void from here on."""
        return self._stream.receive_buffer()

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._stream.received(count)

    def next_frame(self) -> Frame | None:
        """One frame of the client, or None when more bytes are needed. The sign-in is answered before it is shown."""
        if self.closed:
            return None
        found = self._stream.next()
        if not isinstance(found, LocatedFrame):
            return None
        frame = found.frame
        if self.agreement is None:
            self._sign_in(frame)
        elif frame.command not in _COMMANDS:
            raise PeerError(f"{frame.command[:40]!r} is no command of a STOMP client")
        return frame

    def message(self, headers: Mapping[str, str], body: bytes) -> None:
        self._say("MESSAGE", headers, body, sized=True)

    def receipt(self, receipt_id: str) -> None:
        self._say("RECEIPT", {"receipt-id": receipt_id})

    def error(self, message: str, body: str = "", **more: str) -> None:
        """Say what was wrong; nothing follows."""
        self._say("ERROR", {"message": message, **more}, body.encode(), sized=True)
        self.closed = True

    def _sign_in(self, frame: Frame) -> None:
        if frame.command not in {"CONNECT", "STOMP"}:
            raise PeerError(f"{frame.command[:40]!r} where CONNECT was due")
        version = version_chosen(frame.headers.get("accept-version"), self._versions)
        if version is None:
            known = ",".join(self._versions)
            self.error(f"Supported protocol versions are {known}", version=known)
            return
        self.agreement = agreed(version, self._heartbeats, heartbeats_of(frame.headers.get("heart-beat")))
        self._stream.agree(version, {})
        answer = {} if version is Version.V1_0 else {"version": version.value, "heart-beat": str(self._heartbeats)}
        self._say("CONNECTED", answer)

    def _say(self, command: str, headers: Mapping[str, str], body: bytes = b"", *, sized: bool = False) -> None:
        octets = encode_frame(command, headers, body, version=self._stream.version, sized=sized)
        self.outgoing.append(memoryview(octets))
