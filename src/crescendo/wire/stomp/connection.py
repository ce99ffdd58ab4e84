"""What is the state of one STOMP client connection, and what follows from the bytes that arrived?

Sans-IO: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and what must be written
stands in `outgoing`. It reads no clock: heart-beats are numbers here, and whoever owns the socket watches them.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.stomp import commands
from crescendo.wire.stomp.batch import SendBatch, numbers_of
from crescendo.wire.stomp.commands import Ack
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Connected, Deliveries, Event, Failed, Octets, Receipts, Texts, reason_of
from crescendo.wire.stomp.frames import HEARTBEAT, MAX_BODY_BYTES, MAX_HEADER_BYTES, Frame, LocatedFrame, encode_frame
from crescendo.wire.stomp.handshake import (
    VERSIONS,
    Agreement,
    Heartbeats,
    accept_version,
    agreed,
    heartbeats_of,
    version_answered,
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
        self._stream = Stream(runs_of={}, max_header_bytes=max_header_bytes, max_body_bytes=max_body_bytes)
        headers = commands.connect(
            host=host,
            accept_version=accept_version(versions),
            heartbeats=str(heartbeats),
            login=login,
            passcode=passcode,
            client_id=client_id,
            more=more,
        )
        # Servers of 1.0 know CONNECT only; all later ones know both.
        self._say("CONNECT" if Version.V1_0 in self._versions else "STOMP", headers)

    @property
    def version(self) -> Version:
        """The version that was agreed on; before that, the highest one."""
        return self._stream.version

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier deliveries are void from here on."""
        return self._stream.receive_buffer()

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._stream.received(count)

    @property
    def begins_with_message(self) -> bool:
        """Whether the frame that is still incomplete is a message."""
        return self._stream.begins_with(b"MESSAGE")

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        if self.closed:
            return None
        found = self._stream.next()
        if found is None:
            return None
        return self._take_run(found) if isinstance(found, FrameRun) else self._take_frame(found)

    # -- things to say -------------------------------------------------------------------------------------------

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
        """Queue one message by the scalar path. Without its size ActiveMQ takes it for a text."""
        headers = commands.send(
            destination,
            persistent=persistent,
            ttl_ms=ttl_ms,
            priority=priority,
            now_ms=now_ms,
            transaction=transaction,
            receipt=receipt,
            more=more,
        )
        self._say("SEND", headers, body, sized=sized)

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
        headers = commands.subscribe(
            self.version, subscription, destination, ack, selector=selector, receipt=receipt, more=more
        )
        self._say("SUBSCRIBE", headers)

    def unsubscribe(
        self,
        subscription: str,
        *,
        destination: str | None = None,
        receipt: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        headers = commands.unsubscribe(
            self.version, subscription, destination=destination, receipt=receipt, more=more
        )  # fmt: skip
        self._say("UNSUBSCRIBE", headers)

    def ack(
        self, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        """Acknowledge one delivery by its id, and the earlier ones where the subscription's mode says so."""
        headers = commands.acknowledge(self.version, subscription, delivery, transaction=transaction, receipt=receipt)
        self._say("ACK", headers)

    def nack(
        self, subscription: str, delivery: str, *, transaction: str | None = None, receipt: str | None = None
    ) -> None:
        headers = commands.reject(self.version, subscription, delivery, transaction=transaction, receipt=receipt)
        self._say("NACK", headers)

    def begin(self, transaction: str, *, receipt: str | None = None) -> None:
        self._say("BEGIN", commands.transaction(transaction, receipt=receipt))

    def commit(self, transaction: str, *, receipt: str | None = None) -> None:
        self._say("COMMIT", commands.transaction(transaction, receipt=receipt))

    def abort(self, transaction: str, *, receipt: str | None = None) -> None:
        self._say("ABORT", commands.transaction(transaction, receipt=receipt))

    def disconnect(self, *, receipt: str | None = None) -> None:
        """Say good-bye; with a receipt, the server answers when it has read everything."""
        if not self.closed and self.agreement is not None:
            self._say("DISCONNECT", {} if receipt is None else {"receipt": receipt})

    def heartbeat(self) -> None:
        if self.agreement is not None:
            self.outgoing.append(memoryview(HEARTBEAT))

    # -- frames in -----------------------------------------------------------------------------------------------

    def _take_frame(self, placed: LocatedFrame) -> Event:
        frame = placed.frame
        if frame.command == "ERROR":
            self.closed = True
            return Failed(reason_of(frame.headers, bytes(frame.body)), frame.headers.get("receipt-id"))
        if self.agreement is None:
            return self._take_connected(frame)
        match frame.command:
            case "MESSAGE":
                bodies = np.ndarray((1, len(frame.body)), np.uint8, self._stream.buffer, placed.body_start)
                ids = (self._delivery_id(frame.headers),)
                return self._deliver(frame.headers, ids, bodies, batched=False)
            case "RECEIPT":
                receipt = frame.headers.get("receipt-id")
                if receipt is None:
                    raise PeerError("a receipt that does not say what for")
                return Receipts((receipt,), None)
            case "CONNECTED":
                raise PeerError("a second CONNECTED")
            case unknown:
                raise PeerError(f"{unknown[:40]!r} is no command of a STOMP server")

    def _take_connected(self, frame: Frame) -> Event:
        if frame.command != "CONNECTED":
            raise PeerError(f"{frame.command[:40]!r} where CONNECTED was due; is this a STOMP port?")
        version = version_answered(frame.headers.get("version"), self._versions)
        self.agreement = agreed(version, self._heartbeats, heartbeats_of(frame.headers.get("heart-beat")))
        id_header = b"ack" if version is Version.V1_2 else b"message-id"
        self._stream.agree(version, {"MESSAGE": id_header, "RECEIPT": b"receipt-id"} if self._batching else {})
        return Connected(self.agreement, frame.headers.get("server", ""))

    def _take_run(self, run: FrameRun) -> Event:
        layout, buffer = run.layout, self._stream.buffer
        rows = layout.ids(buffer, run.start, run.frames, run.apart)
        ids = Texts(rows, self.version)
        if layout.command == "RECEIPT":
            return Receipts(ids, numbers_of(rows))
        bodies = layout.bodies(buffer, run.start, run.frames, run.apart)
        return self._deliver(layout.headers, ids, bodies, batched=True)

    def _deliver(self, headers: dict[str, str], ids: Sequence[str], bodies: Octets, *, batched: bool) -> Deliveries:
        subscription = headers.get("subscription")
        if subscription is None:
            if self.version is not Version.V1_0:
                raise PeerError("a message that does not say for which subscription")
            subscription = ""
        return Deliveries(subscription, ids, bodies, headers, headers.get("redelivered") == "true", batched)

    def _delivery_id(self, headers: dict[str, str]) -> str:
        message_id = headers.get("message-id")
        if message_id is None:
            raise PeerError("a message without a message-id")
        # In 1.2 only messages that want to be acknowledged have an ack header.
        return headers.get("ack", "") if self.version is Version.V1_2 else message_id

    # -- frames out ----------------------------------------------------------------------------------------------

    def _say(self, command: str, headers: Mapping[str, str], body: bytes = b"", *, sized: bool = False) -> None:
        self.outgoing.append(memoryview(encode_frame(command, headers, body, version=self.version, sized=sized)))
