"""How does the reference server speak each protocol?

On the project's codecs, which frame bytes for both sides. Arriving messages are settled at once; what receivers answer
to deliveries is ignored.
"""

from collections.abc import Callable, Iterator
from typing import Any

from crescendo.wire.amqp091.connection import Connection as Amqp091Connection
from crescendo.wire.amqp091.events import Deliveries as Amqp091Deliveries
from crescendo.wire.amqp091.events import MethodReceived
from crescendo.wire.amqp091.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from crescendo.wire.amqp10.connection import Connection as Amqp10Connection
from crescendo.wire.amqp10.events import Attached
from crescendo.wire.amqp10.events import Deliveries as Amqp10Deliveries
from crescendo.wire.amqp10.links import RECEIVER, SETTLE_SETTLED
from crescendo.wire.artemis_core import packets as core
from crescendo.wire.artemis_core.messages import CoreMessage
from crescendo.wire.artemis_core.server import ServerConnection as ArtemisCoreServer
from crescendo.wire.mqtt.connection import Connection as MqttConnection
from crescendo.wire.mqtt.events import ConnectRequested, SubscribeRequested
from crescendo.wire.mqtt.events import Deliveries as MqttDeliveries
from crescendo.wire.mqtt.topics import SHARE
from crescendo.wire.openwire.control_commands import ConsumerInfo
from crescendo.wire.openwire.identifiers import MessageId, ProducerId
from crescendo.wire.openwire.messages import BytesMessage, MessageDispatch
from crescendo.wire.openwire.server import ServerConnection as OpenWireServer
from crescendo.wire.stomp.server import ServerConnection
from mlmq_side import MlmqSide
from plain_protocol import MESSAGE, PLAIN, PLAIN_DESTINATION, SUBSCRIBE, PlainCodec
from server_side import Arrived, ServerSide

_CREDIT = 4000


class Amqp10Side(ServerSide):
    def __init__(self) -> None:
        super().__init__()
        self._codec = Amqp10Connection(container_id="reference", server=True)
        self._targets: dict[int, str] = {}
        self._credits: dict[int, int] = {}
        self._source = 0
        self._settled = False

    def _take(self, event: Any) -> Iterator[Arrived]:
        if isinstance(event, Attached):
            self._codec.accept_attach(event.handle, event.attach)
            if event.attach.role is RECEIVER:
                self._source, self.consumes = event.handle, event.attach.source.address
                self._settled = event.attach.snd_settle_mode == SETTLE_SETTLED
            else:
                self._targets[event.handle] = event.attach.target.address
                self._grant(event.handle)
        elif isinstance(event, Amqp10Deliveries):
            destination = self._targets[event.handle]
            yield from ((destination, row.tobytes()) for row in event.bodies)
            if not event.settled:
                self._codec.settle(int(event.ids[0]), int(event.ids[-1]))
            self._credits[event.handle] -= len(event.ids)
            if self._credits[event.handle] <= _CREDIT // 2:
                self._grant(event.handle)

    def _grant(self, handle: int) -> None:
        self._credits[handle] = _CREDIT
        self._codec.grant(handle, _CREDIT)

    def room(self) -> int:
        return int(self._codec.sendable(self._source))

    def deliver(self, payload: bytes) -> None:
        self._codec.transfer_one(self._source, payload, settled=self._settled)


class Amqp091Side(ServerSide):
    def __init__(self) -> None:
        super().__init__()
        self._codec = Amqp091Connection(server=True)
        self._confirms = False
        self._channel = 1
        self._delivered = 0

    def _take(self, event: Any) -> Iterator[Arrived]:
        match event:
            case MethodReceived(channel=channel, method=QueueDeclare(queue=queue)):
                self._codec.send(channel, QueueDeclareOk(queue))
            case MethodReceived(channel=channel, method=BasicQos()):
                self._codec.send(channel, BasicQosOk())
            case MethodReceived(channel=channel, method=ConfirmSelect()):
                self._confirms = True
                self._codec.send(channel, ConfirmSelectOk())
            case MethodReceived(channel=channel, method=BasicConsume(queue=queue)):
                self._codec.send(channel, BasicConsumeOk("reference"))
                self._channel, self.consumes = channel, queue
            case Amqp091Deliveries(channel=channel, tags=tags, bodies=bodies, method=method):
                yield from ((method.routing_key, row.tobytes()) for row in bodies)
                if self._confirms:
                    self._codec.send(channel, BasicAck(int(tags[-1]), multiple=True))

    def deliver(self, payload: bytes) -> None:
        self._delivered += 1
        deliver = BasicDeliver("reference", self._delivered, False, "", self.consumes or "")
        self._codec.send_content(self._channel, deliver, payload)


class StompSide(ServerSide):
    _PREFIX = "/queue/"

    def __init__(self) -> None:
        super().__init__()
        self._codec = ServerConnection()
        self._subscription = ""
        self._delivered = 0

    def _next(self) -> Any:
        return self._codec.next_frame()

    def _take(self, event: Any) -> Iterator[Arrived]:
        headers = event.headers
        if event.command == "SEND":
            yield headers["destination"].removeprefix(self._PREFIX), bytes(event.body)
        elif event.command == "SUBSCRIBE":
            self._subscription = headers.get("id", "0")
            self.consumes = headers["destination"].removeprefix(self._PREFIX)
        if "receipt" in headers:
            self._codec.receipt(headers["receipt"])
        if event.command == "DISCONNECT":
            self._codec.closed = True

    def deliver(self, payload: bytes) -> None:
        self._delivered += 1
        headers = {
            "subscription": self._subscription,
            "message-id": str(self._delivered),
            "ack": str(self._delivered),
            "destination": f"{self._PREFIX}{self.consumes}",
        }
        self._codec.message(headers, payload)


class MqttSide(ServerSide):
    def __init__(self) -> None:
        super().__init__()
        self._codec = MqttConnection()
        self._qos = 0

    def _take(self, event: Any) -> Iterator[Arrived]:
        match event:
            case ConnectRequested():
                self._codec.accept()
            case SubscribeRequested(packet_id=packet_id, filters=filters):
                self._qos, topic = filters[0].qos, filters[0].text
                self._codec.grant(packet_id, (self._qos,))
                self.consumes = topic.split("/", 2)[2] if topic.startswith(f"{SHARE}/") else topic
            case MqttDeliveries(topic=topic, qos=qos, ids=ids, bodies=bodies):
                yield from ((topic, row.tobytes()) for row in bodies)
                if qos:
                    self._codec.acknowledge(ids, qos)

    def room(self) -> int:
        return int(self._codec.window.room) if self._qos else 1

    def deliver(self, payload: bytes) -> None:
        self._codec.publish_one(self.consumes or "", payload, qos=self._qos)


class OpenWireSide(ServerSide):
    _PRODUCER = ProducerId(b"reference", 1, 1)

    def __init__(self) -> None:
        super().__init__()
        self._codec = OpenWireServer()
        self._consumer = ConsumerInfo()
        self._delivered = 0

    def _next(self) -> Any:
        return self._codec.next_command()

    def _take(self, event: Any) -> Iterator[Arrived]:
        if isinstance(event, BytesMessage):
            yield event.destination.name, bytes(event.content)
        elif isinstance(event, ConsumerInfo):
            self._consumer, self.consumes = event, event.destination.name
        self._codec.respond(event)

    def deliver(self, payload: bytes) -> None:
        self._delivered += 1
        consumer, destination = self._consumer.consumer_id, self._consumer.destination
        message_id = MessageId(producer=self._PRODUCER, sequence=self._delivered)
        message = BytesMessage(
            producer_id=self._PRODUCER, destination=destination, message_id=message_id, content=payload
        )
        self._codec.send(MessageDispatch(consumer_id=consumer, destination=destination, message=message))


class ArtemisCoreSide(ServerSide):
    def __init__(self) -> None:
        super().__init__()
        self._codec = ArtemisCoreServer()
        self._queue, self._consumer = "", 0
        self._credits = 0
        self._delivered = 0

    def _next(self) -> Any:
        return self._codec.next_packet()

    def _take(self, event: Any) -> Iterator[Arrived]:
        match event:
            case core.SendMessage(message=message):
                yield message.address, bytes(message.body)
            case core.CreateConsumer(consumer=consumer, queue=queue):
                self._consumer, self._queue = consumer, queue
            case core.StartSession():
                self.consumes = self._queue
            case core.ConsumerCredits(credits=credits):
                self._credits += credits
        self._codec.respond(event)

    def room(self) -> int:
        return int(self._credits > 0)

    def deliver(self, payload: bytes) -> None:
        self._delivered += 1
        message = CoreMessage(message_id=self._delivered, address=self._queue, body=payload)
        self._codec.send(core.ReceiveMessage(message, self._consumer))
        self._credits -= len(self._codec.outgoing[-1])


class PlainSide(ServerSide):
    """For plain sockets. There is one destination, and nothing is answered."""

    def __init__(self) -> None:
        super().__init__()
        self._codec = PlainCodec()

    def _take(self, event: Any) -> Iterator[Arrived]:
        kind, content = event
        if kind == SUBSCRIBE:
            self.consumes = content.decode()
        else:
            yield PLAIN_DESTINATION, content

    def deliver(self, payload: bytes) -> None:
        self._codec.send(MESSAGE, payload)


SIDES: dict[str, Callable[[], ServerSide]] = {
    "amqp10": Amqp10Side,
    "amqp091": Amqp091Side,
    "stomp": StompSide,
    "mqtt": MqttSide,
    "openwire": OpenWireSide,
    "core": ArtemisCoreSide,
    "mlmq": MlmqSide,
    PLAIN: PlainSide,
}
PROTOCOLS = tuple(name for name in SIDES if name != PLAIN)
