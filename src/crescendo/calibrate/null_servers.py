"""How does a server accept or produce load without being a broker?

One small class per protocol, on the server side of our own codecs: it does the handshake that a client needs before
load may flow, and can produce deliveries like those of a broker. It routes nothing, stores nothing, settles nothing,
and uses no socket; `null_process.py` moves the bytes.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp091.connection import Connection as Amqp091Connection
from crescendo.wire.amqp091.events import MethodReceived
from crescendo.wire.amqp091.frames import encode_content
from crescendo.wire.amqp091.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicQos,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
)
from crescendo.wire.amqp091.properties import NO_PROPERTIES
from crescendo.wire.amqp10.batch import BATCH_BYTES, MAX_BATCH, TransferBatch
from crescendo.wire.amqp10.connection import Connection as Amqp10Connection
from crescendo.wire.amqp10.events import Attached as Amqp10Attached
from crescendo.wire.amqp10.links import RECEIVER
from crescendo.wire.amqp10.session import WINDOW
from crescendo.wire.artemis_core import packets as core
from crescendo.wire.artemis_core.frames import encode_frame as encode_core
from crescendo.wire.artemis_core.messages import CoreMessage
from crescendo.wire.artemis_core.packet_fields import Packet
from crescendo.wire.artemis_core.server import ServerConnection as ArtemisCoreServerConnection
from crescendo.wire.mqtt.batch import PublishBatch
from crescendo.wire.mqtt.connection import Connection as MqttConnection
from crescendo.wire.mqtt.events import ConnectRequested, SubscribeRequested
from crescendo.wire.mqtt.topics import SHARE
from crescendo.wire.openwire.control_commands import ConsumerInfo, OpenWireCommand, ProducerInfo
from crescendo.wire.openwire.frames import encode_frame as encode_openwire
from crescendo.wire.openwire.identifiers import MessageId, ProducerId
from crescendo.wire.openwire.messages import BytesMessage, MessageDispatch
from crescendo.wire.openwire.server import ServerConnection as OpenWireServerConnection
from crescendo.wire.stomp.frames import encode_frame
from crescendo.wire.stomp.server import ServerConnection

Octets = npt.NDArray[np.uint8]

_CONSUMER = "crescendo-null"
_CORE_CREDITS, _CORE_GRANTS = 2**31 - 1, 128
"""256 GiB, so that a sender never asks for more: the sink counts only messages."""
_PLACEHOLDER_TAG = 0x7EAD_BEE1_7EAD_BEE2  # unique in the frame, so that its position is found; overwritten


class NullServer(Protocol):
    """The server side of one connection."""

    begun: bool  # load may flow as soon as `outgoing` is written
    bodies: Octets  # the payloads of the deliveries of a source that has begun

    @property
    def outgoing(self) -> deque[memoryview]:
        """Bytes to be written."""
        ...

    def receive_buffer(self) -> memoryview: ...

    def received(self, count: int) -> None:
        """Decode what was read, and queue the answers."""
        ...

    def room(self) -> int:
        """How many deliveries may be queued now."""
        ...

    def deliver(self, count: int) -> None:
        """Queue the first `count` deliveries. Their payloads must not be changed until `outgoing` is empty."""
        ...


class TiledFrames:
    """A batch of copies of one delivery, with increasing delivery tags if the protocol has them."""

    def __init__(self, unit: bytes, size: int, body_start: int, tag_at: int | None = None) -> None:
        self._length = len(unit)
        self.capacity = max(1, min(MAX_BATCH, BATCH_BYTES // len(unit)))
        self._octets = np.tile(np.frombuffer(unit, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, len(unit))
        self.bodies: Octets = rows[:, body_start : body_start + size]
        self._tags = None if tag_at is None else rows[:, tag_at : tag_at + 8].view(">u8")[:, 0]

    def frames(self, first_tag: int, count: int) -> memoryview:
        if self._tags is not None:
            self._tags[:count] = np.arange(first_tag, first_tag + count, dtype=np.uint64)
        return self._octets.data[: count * self._length]


class _NullServer(ABC):
    """What all null servers have in common."""

    _connection: Any

    def __init__(self, size: int, *, source: bool) -> None:
        self._size = size
        self._source = source
        self._batch: Any = None
        self.begun = False
        self.bodies: Octets = np.empty((0, size), np.uint8)

    @property
    def outgoing(self) -> deque[memoryview]:
        queued: deque[memoryview] = self._connection.outgoing
        return queued

    def receive_buffer(self) -> memoryview:
        view: memoryview = self._connection.receive_buffer()
        return view

    def received(self, count: int) -> None:
        self._connection.received(count)
        while (event := self._next()) is not None:
            self._answer(event)

    def room(self) -> int:
        return 0 if self.outgoing else len(self.bodies)

    def _next(self) -> Any:
        return self._connection.next_event()

    @abstractmethod
    def _answer(self, event: Any) -> None:
        """Continue the handshake, or begin."""

    def _begin(self, batch: Any = None) -> None:
        """From here on load may flow: from the client, or from this batch."""
        if batch is not None:
            self._batch, self.bodies = batch, batch.bodies
        self.begun = True


class Amqp10NullServer(_NullServer):
    """Grants a sender the maximum credit; respects that of a receiver."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = Amqp10Connection(container_id=_CONSUMER, server=True)
        self._handle = 0

    def _answer(self, event: Any) -> None:
        if not isinstance(event, Amqp10Attached):
            return
        self._handle = event.handle
        self._connection.accept_attach(event.handle, event.attach)
        if event.attach.role is RECEIVER:
            self._begin(TransferBatch(handle=event.handle, body_length=self._size, settled=True))
        else:
            self._connection.grant(event.handle, WINDOW)
            self._begin()

    def room(self) -> int:
        return min(super().room(), int(self._connection.sendable(self._handle, self._size)))

    def deliver(self, count: int) -> None:
        self._connection.transfer(self._batch, self._handle, count)


class Amqp091NullServer(_NullServer):
    """Accepts every queue declaration, and one consumer."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = Amqp091Connection(server=True)
        self._delivered = 0

    def _answer(self, event: Any) -> None:
        match event:
            case MethodReceived(channel=channel, method=QueueDeclare(queue=queue)):
                self._connection.send(channel, QueueDeclareOk(queue))
                if not self._source:
                    self._begin()
            case MethodReceived(channel=channel, method=BasicQos()):
                self._connection.send(channel, BasicQosOk())
            case MethodReceived(channel=channel, method=BasicCancel(consumer_tag=tag)):
                self._connection.send(channel, BasicCancelOk(tag))
                self.bodies = self.bodies[:0]
            case MethodReceived(channel=channel, method=BasicConsume(queue=queue, consumer_tag=given)):
                tag = given or _CONSUMER
                self._connection.send(channel, BasicConsumeOk(tag))
                deliver = BasicDeliver(tag, _PLACEHOLDER_TAG, False, "", queue)
                unit = encode_content(
                    channel, deliver, NO_PROPERTIES, bytes(self._size), self._connection.limits.frame_max
                )
                tag_at = unit.index(_PLACEHOLDER_TAG.to_bytes(8, "big"))
                self._begin(TiledFrames(unit, self._size, len(unit) - 1 - self._size, tag_at))

    def deliver(self, count: int) -> None:
        self.outgoing.append(self._batch.frames(self._delivered + 1, count))
        self._delivered += count


class StompNullServer(_NullServer):
    """Accepts every client, and one subscription."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = ServerConnection()

    def _next(self) -> Any:
        return self._connection.next_frame()

    def _answer(self, frame: Any) -> None:
        agreement = self._connection.agreement
        if agreement is not None and not self._source:
            self._begin()
        elif agreement is not None and frame.command == "SUBSCRIBE":
            if "receipt" in frame.headers:
                self._connection.receipt(frame.headers["receipt"])
            headers = {
                "subscription": frame.headers.get("id", "0"),
                "message-id": f"{0:016d}",
                "destination": frame.headers["destination"],
            }
            unit = encode_frame("MESSAGE", headers, bytes(self._size), version=agreement.version, sized=True)
            self._begin(TiledFrames(unit, self._size, len(unit) - 1 - self._size))

    def deliver(self, count: int) -> None:
        self.outgoing.append(self._batch.frames(0, count))


class MqttNullServer(_NullServer):
    """Accepts every client, and one subscription at QoS 0."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = MqttConnection()

    def _answer(self, event: Any) -> None:
        match event:
            case ConnectRequested():
                self._connection.accept()
                if not self._source:
                    self._begin()
            case SubscribeRequested(packet_id=packet_id, filters=filters):
                self._connection.grant(packet_id, (0,) * len(filters))
                topic = filters[0].text
                if topic.startswith(f"{SHARE}/"):
                    topic = topic.split("/", 2)[2]
                self._begin(
                    PublishBatch(topic=topic, body_length=self._size, qos=0, version=self._connection.version)
                )  # fmt: skip

    def deliver(self, count: int) -> None:
        self._connection.publish(self._batch, count)


class OpenWireNullServer(_NullServer):
    """Accepts every client, and one consumer."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = OpenWireServerConnection()
        self._delivered = 0

    def _next(self) -> Any:
        return self._connection.next_command()

    def _answer(self, command: OpenWireCommand) -> None:
        self._connection.respond(command)
        match command:
            case ProducerInfo() if not self._source:
                self._begin()
            case ConsumerInfo(consumer_id=consumer, destination=destination) if self._source:
                producer = ProducerId(_CONSUMER.encode(), 1, 1)
                message = BytesMessage(
                    producer_id=producer,
                    destination=destination,
                    message_id=MessageId(producer=producer, sequence=_PLACEHOLDER_TAG),
                    content=bytes(self._size),
                )
                unit = encode_openwire(
                    MessageDispatch(consumer_id=consumer, destination=destination, message=message),
                    self._connection.version,
                )
                tag_at = unit.index(_PLACEHOLDER_TAG.to_bytes(8, "big"))
                body_start = unit.index(self._size.to_bytes(4, "big") + bytes(self._size), tag_at + 8) + 4
                self._begin(TiledFrames(unit, self._size, body_start, tag_at))

    def deliver(self, count: int) -> None:
        self.outgoing.append(self._batch.frames(self._delivered + 1, count))
        self._delivered += count


class ArtemisCoreNullServer(_NullServer):
    """Has every queue; grants a sender more credit than it can use, and ignores the window of a receiver."""

    def __init__(self, size: int, *, source: bool) -> None:
        super().__init__(size, source=source)
        self._connection = ArtemisCoreServerConnection()
        self._delivered = 0
        self._consumer, self._queue = 0, ""

    def _next(self) -> Any:
        return self._connection.next_packet()

    def _answer(self, packet: Packet) -> None:
        match packet:
            case core.RequestCredits(address=address) if not self._source:
                for _ in range(_CORE_GRANTS):
                    self._connection.send(core.ProducerCredits(_CORE_CREDITS, address))
                self._begin()
            case core.StartSession() if self._source:
                message = CoreMessage(message_id=_PLACEHOLDER_TAG, address=self._queue, body=bytes(self._size))
                unit = encode_core(core.ReceiveMessage(message, consumer=self._consumer), self._connection.version)
                tag_at = unit.rindex(_PLACEHOLDER_TAG.to_bytes(8, "big"))
                self._begin(TiledFrames(unit, self._size, tag_at - self._size, tag_at))
            case core.CreateConsumer(consumer=consumer, queue=queue):
                self._consumer, self._queue = consumer, queue
                self._connection.respond(packet)
            case _:
                self._connection.respond(packet)

    def deliver(self, count: int) -> None:
        self.outgoing.append(self._batch.frames(self._delivered + 1, count))
        self._delivered += count


class MakeNullServer(Protocol):
    def __call__(self, size: int, *, source: bool) -> NullServer: ...
