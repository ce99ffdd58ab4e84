"""What is the state of one STOMP client connection, and what follows from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and bytes to write queue up
in `outgoing`. It reads no clock: heart-beats are only numbers here, and the owner of the socket enforces them.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.stomp import client_frames
from crescendo.wire.stomp.batch import SendBatch, numbers_of
from crescendo.wire.stomp.client_frames import Ack
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, HeaderValues, Octets, Receipts, reason_of
from crescendo.wire.stomp.frames import HEARTBEAT, MAX_BODY_BYTES, MAX_HEADER_BYTES, Frame, LocatedFrame, encode_frame
from crescendo.wire.stomp.handshake import (
    VERSIONS,
    Agreement,
    Heartbeats,
    accept_version,
    agreed,
    heartbeats_of,
    version_from_server,
)
from crescendo.wire.stomp.stream import FrameRun, Stream


class Connection:
    """The client's side of a connection."""

    def __init__(
        self,
        *,
        host: str,
        login: str | None = None,
        passcode: str | None = None,
        client_id: str | None = None,
        versions: Sequence[Version] = VERSIONS,
        heartbeats: Heartbeats = Heartbeats(),  # noqa: B008 - frozen
        more: Mapping[str, str] | None = None,
        batching: bool = True,
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.closed = False
        self.agreement: Agreement | None = None
        self._versions = tuple(versions)
        self._heartbeats = heartbeats
        self._batching = batching
        self._stream = Stream(run_id_headers={}, max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)
        headers = client_frames.connect(
            host=host,
            accept_version=accept_version(versions),
            heartbeats=str(heartbeats),
            login=login,
            passcode=passcode,
            client_id=client_id,
            more=more,
        )
        # STOMP 1.0 servers know only CONNECT; later ones know both.
        self._send_frame("CONNECT" if Version.V1_0 in self._versions else "STOMP", headers)

    @property
    def version(self) -> Version:
        """The negotiated version; before that, the highest one."""
        return self._stream.version

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the views of earlier deliveries."""
        return self._stream.receive_buffer()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._stream.received(count)

    @property
    def begins_with_message(self) -> bool:
        """Whether the incomplete frame in the buffer is a message."""
        return self._stream.begins_with(b"MESSAGE")

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        if self.closed:
            return None
        found = self._stream.next()
        if found is None:
            return None
        return self._take_run(found) if isinstance(found, FrameRun) else self._take_frame(found)

    # -- commands ------------------------------------------------------------------------------------------------

    def send(
        self,
        destination: str,
        body: bytes,
        *,
        sized: bool = True,
        persistent: bool = False,
        ttl_ms: int | None = None,
        priority: int | None = None,
        now_ms: int | None = None,
        transaction: str | None = None,
        receipt: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Queue one message through the scalar path. Without content-length ActiveMQ treats it as text."""
        headers = client_frames.send(
            destination,
            persistent=persistent,
            ttl_ms=ttl_ms,
            priority=priority,
            now_ms=now_ms,
            transaction=transaction,
            receipt=receipt,
            more=more,
        )
        self._send_frame("SEND", headers, body, sized=sized)

    def send_batch(self, batch: SendBatch, first_number: int, count: int) -> None:
        """Queue a batch whose bodies are filled in. The batch must not be touched until `outgoing` is empty."""
        self.outgoing.append(batch.frames(first_number, count))

    def subscribe(
        self,
        subscription: str,
        destination: str,
        ack: Ack = Ack.AUTO,
        *,
        selector: str | None = None,
        receipt: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        headers = client_frames.subscribe(
            self.version, subscription, destination, ack, selector=selector, receipt=receipt, more=more
        )
        self._send_frame("SUBSCRIBE", headers)

    def unsubscribe(
        self,
        subscription: str,
        *,
        destination: str | None = None,
        receipt: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        headers = client_frames.unsubscribe(
            self.version, subscription, destination=destination, receipt=receipt, more=more
        )  # fmt: skip
        self._send_frame("UNSUBSCRIBE", headers)

    def ack(
        self, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        """Acknowledge one delivery by its id, and all earlier ones if the subscription's mode is cumulative."""
        headers = client_frames.acknowledge(
            self.version, subscription, delivery, transaction=transaction, receipt=receipt
        )
        self._send_frame("ACK", headers)

    def nack(
        self, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        headers = client_frames.reject(self.version, subscription, delivery, transaction=transaction, receipt=receipt)
        self._send_frame("NACK", headers)

    def begin(self, transaction: str, *, receipt: str | None = None) -> None:
        self._send_frame("BEGIN", client_frames.transaction(transaction, receipt=receipt))

    def commit(self, transaction: str, *, receipt: str | None = None) -> None:
        self._send_frame("COMMIT", client_frames.transaction(transaction, receipt=receipt))

    def abort(self, transaction: str, *, receipt: str | None = None) -> None:
        self._send_frame("ABORT", client_frames.transaction(transaction, receipt=receipt))

    def disconnect(self, *, receipt: str | None = None) -> None:
        """Send DISCONNECT; with a receipt, the server answers once it has processed everything."""
        if not self.closed and self.agreement is not None:
            self._send_frame("DISCONNECT", {} if receipt is None else {"receipt": receipt})

    def heartbeat(self) -> None:
        if self.agreement is not None:
            self.outgoing.append(memoryview(HEARTBEAT))

    # -- frames in -----------------------------------------------------------------------------------------------

    def _take_frame(self, located: LocatedFrame) -> Event:
        frame = located.frame
        if frame.command == "ERROR":
            self.closed = True
            return Failed(reason_of(frame.headers, bytes(frame.body)), frame.headers.get("receipt-id"))
        if self.agreement is None:
            return self._take_connected(frame)
        match frame.command:
            case "MESSAGE":
                bodies = np.ndarray((1, len(frame.body)), np.uint8, self._stream.buffer, located.body_start)
                ids = (self._delivery_id(frame.headers),)
                return self._deliver(frame.headers, ids, bodies, batched=False)
            case "RECEIPT":
                receipt = frame.headers.get("receipt-id")
                if receipt is None:
                    raise PeerError("a RECEIPT without a receipt-id")
                return Receipts((receipt,), None)
            case "CONNECTED":
                raise PeerError("a second CONNECTED")
            case unknown:
                raise PeerError(f"{unknown[:40]!r} is not a command of a STOMP server")

    def _take_connected(self, frame: Frame) -> Event:
        if frame.command != "CONNECTED":
            raise PeerError(f"{frame.command[:40]!r} where CONNECTED was expected; is this a STOMP port?")
        version = version_from_server(frame.headers.get("version"), self._versions)
        self.agreement = agreed(version, self._heartbeats, heartbeats_of(frame.headers.get("heart-beat")))
        id_header = b"ack" if version is Version.V1_2 else b"message-id"
        self._stream.set_version(version, {"MESSAGE": id_header, "RECEIPT": b"receipt-id"} if self._batching else {})
        return Connected(self.agreement, frame.headers.get("server", ""))

    def _take_run(self, run: FrameRun) -> Event:
        layout, buffer = run.layout, self._stream.buffer
        rows = layout.ids(buffer, run.start, run.frames, run.spacing)
        ids = HeaderValues(rows, self.version)
        if layout.command == "RECEIPT":
            return Receipts(ids, numbers_of(rows))
        bodies = layout.bodies(buffer, run.start, run.frames, run.spacing)
        return self._deliver(layout.headers, ids, bodies, batched=True)

    def _deliver(self, headers: dict[str, str], ids: Sequence[str], bodies: Octets, *, batched: bool) -> Deliveries:
        subscription = headers.get("subscription")
        if subscription is None:
            if self.version is not Version.V1_0:
                raise PeerError("a message without a subscription")
            subscription = ""
        return Deliveries(subscription, ids, bodies, headers, headers.get("redelivered") == "true", batched)

    def _delivery_id(self, headers: dict[str, str]) -> str:
        message_id = headers.get("message-id")
        if message_id is None:
            raise PeerError("a message without a message-id")
        # In 1.2 only messages that require an acknowledgement have an ack header.
        return headers.get("ack", "") if self.version is Version.V1_2 else message_id

    # -- frames out ----------------------------------------------------------------------------------------------

    def _send_frame(self, command: str, headers: Mapping[str, str], body: bytes = b"", *, sized: bool = False) -> None:
        self.outgoing.append(memoryview(encode_frame(command, headers, body, version=self.version, sized=sized)))
