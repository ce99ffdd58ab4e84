"""What is the state of one MQTT connection, and what follows from the bytes that arrived?

Sans-IO and for both sides: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and bytes
to write queue up in `outgoing`. QoS 2 handshakes and ping responses are automatic; the caller acknowledges messages.
It reads no clock: the keep-alive is only a number here, and the owner of the socket enforces it.
"""

from collections.abc import Iterable

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.arrivals import Arrivals
from crescendo.wire.mqtt.batch import Ids, PublishBatch
from crescendo.wire.mqtt.decoding import decode, packet_length
from crescendo.wire.mqtt.events import (
    Closed,
    Connected,
    ConnectRequested,
    Event,
    Refused,
    Subscribed,
    SubscribeRequested,
    Unsubscribed,
    UnsubscribeRequested,
)
from crescendo.wire.mqtt.incoming import Incoming
from crescendo.wire.mqtt.limits import NO_LIMIT_BYTES, Limits, limits_of
from crescendo.wire.mqtt.outbox import Outbox
from crescendo.wire.mqtt.packet_types import ACKNOWLEDGEMENTS, V5, PacketType
from crescendo.wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    name_of,
)
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties, Property
from crescendo.wire.mqtt.reasons import FAILURE, Reason, reason_text
from crescendo.wire.mqtt.window import IDS, Window, id_of
from crescendo.wire.receive_buffer import ReceiveBuffer

MAX_PACKET_BYTES = 65 * 2**20
"""The largest payload of a workload, and room for its topic and properties."""

_ANSWER_TO = {1: PacketType.PUBACK, 2: PacketType.PUBREC}


class Connection:
    """One side of a connection: a client if it is given a CONNECT packet, otherwise a server."""

    def __init__(
        self, connect: Connect | None = None, *, max_packet_bytes: int = MAX_PACKET_BYTES, batching: bool = True
    ) -> None:
        self._outbox = Outbox()
        self.outgoing = self._outbox.outgoing
        self.closed = False
        self.window = Window()
        self.limits = Limits()  # what the peer allows us
        self._server = connect is None
        self._connect = connect
        self._established = False
        self._max_packet_bytes = max_packet_bytes
        self._buffer = ReceiveBuffer()
        self._incoming = Incoming()
        self._arrivals = Arrivals(self._buffer, self._outbox, self.window, self._incoming, batching=batching)
        if connect is not None:
            self._apply_connect(connect)
            self._outbox.send(connect)

    @property
    def version(self) -> int:
        return self._outbox.version

    def _apply_connect(self, connect: Connect) -> None:
        """Apply what CONNECT settles: the version, and what the client allows the server."""
        self._outbox.version = connect.version
        properties = connect.properties
        limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS)) if connect.version == V5 else IDS
        if self._server:
            self.limits = limits_of(properties, connect.keep_alive_s)
            self.window.limit = limit
        else:
            self._incoming.limit = limit
            announced = int(properties.get(Property.MAXIMUM_PACKET_SIZE, NO_LIMIT_BYTES))
            self._max_packet_bytes = min(self._max_packet_bytes, announced)

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Invalidates the views of earlier deliveries."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes were written into the receive buffer."""
        self._buffer.filled(count)

    @property
    def undecoded_bytes(self) -> int:
        """Received bytes that `next_event` has not consumed yet, incomplete packets included."""
        return self._buffer.waiting

    def next_event(self) -> Event | None:
        """One event, or None when more bytes are needed."""
        buffer = self._buffer
        while not self.closed:
            if buffer.end - buffer.start < 2:
                return None
            length = packet_length(buffer.view, buffer.start, buffer.end, self._max_packet_bytes)
            if length is None or buffer.end - buffer.start < length:
                return None
            event = self._take(length)
            if event is not None:
                return event
        return None

    # -- requests ------------------------------------------------------------------------------------------------

    def subscribe(self, filters: Iterable[Filter], *, subscription_id: int = 0) -> int:
        """Subscribe; returns the number that the answer will carry."""
        properties: Properties = {Property.SUBSCRIPTION_ID: (subscription_id,)} if subscription_id else NO_PROPERTIES
        number = self.window.take(1, PacketType.SUBACK)
        self._outbox.send(Subscribe(id_of(number), tuple(filters), properties))
        return number

    def unsubscribe(self, filters: Iterable[str]) -> int:
        number = self.window.take(1, PacketType.UNSUBACK)
        self._outbox.send(Unsubscribe(id_of(number), tuple(filters)))
        return number

    def publish(self, batch: PublishBatch, count: int) -> int:
        """Queue a batch whose bodies are filled in; returns the number of its first message, 0 at QoS 0.

        The batch must not be touched until `outgoing` is empty.
        """
        first = self.window.take(count, _ANSWER_TO[batch.qos]) if batch.qos else 0
        self.outgoing.append(batch.packets(first, count))
        return first

    def prepared(self, batch: PublishBatch, count: int) -> memoryview:
        """The bytes of a batch if it were sent next; the caller reports the write with `published`."""
        return batch.packets(self.window.next_number, count)

    def published(self, batch: PublishBatch, count: int) -> None:
        """`count` prepared messages were written."""
        if batch.qos:
            self.window.take(count, _ANSWER_TO[batch.qos])

    def publish_one(
        self,
        topic: str,
        payload: bytes | memoryview,
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> int:
        """Queue one message through the scalar path; returns its number, 0 at QoS 0."""
        number = self.window.take(1, _ANSWER_TO[qos]) if qos else 0
        self._outbox.send(Publish(topic, payload, qos, retain, dup, id_of(number), properties))
        return number

    def acknowledge(self, ids: Ids, qos: int) -> None:
        """Acknowledge these messages: with PUBACK at QoS 1, with PUBREC at QoS 2."""
        if qos == 1:
            self._incoming.acknowledged(len(ids))
        if qos:
            self._outbox.acknowledge(_ANSWER_TO[qos], ids)

    def ping(self) -> None:
        self._outbox.send(Pingreq())

    def disconnect(self, code: int = Reason.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Send DISCONNECT. In MQTT 3.1.1 only a client can, and without a reason."""
        if self._established and not self.closed and (self.version == V5 or not self._server):
            self._outbox.send(Disconnect(code, properties))

    # -- as a server ---------------------------------------------------------------------------------------------

    def accept(self, *, session_present: bool = False, properties: Properties = NO_PROPERTIES) -> None:
        """Accept the client."""
        if self.version == V5:
            self._incoming.limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS))
        self._established = True
        self._outbox.send(Connack(Reason.SUCCESS, session_present, properties))

    def refuse(self, code: int, reason: str = "") -> None:
        """Refuse the client."""
        self._outbox.send(Connack(code, False, {Property.REASON_STRING: reason} if reason else NO_PROPERTIES))
        self.closed = True

    def grant(self, packet_id: int, codes: tuple[int, ...]) -> None:
        """Answer a subscription with the granted QoS or a refusal per filter."""
        self._outbox.send(Suback(packet_id, codes))

    def grant_unsubscribe(self, packet_id: int, codes: tuple[int, ...]) -> None:
        self._outbox.send(Unsuback(packet_id, codes))

    # -- packets in ----------------------------------------------------------------------------------------------

    def _take(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        kind = octets[0] >> 4
        if not self._established:
            buffer.start += length
            return self._take_handshake(decode(octets, self.version))
        if kind == PacketType.PUBLISH:
            return self._arrivals.take_publish(octets)
        if kind in ACKNOWLEDGEMENTS:
            return self._arrivals.take_acks(octets)
        buffer.start += length
        packet = decode(octets, self.version)
        return self._take_request(packet) if self._server else self._take_answer(packet)

    def _take_handshake(self, packet: Packet) -> Event:
        if self._server:
            if not isinstance(packet, Connect) or self._connect is not None:
                raise PeerError(f"{name_of(packet)} before the connection is established")
            self._connect = packet
            self._apply_connect(packet)
            return ConnectRequested(packet)
        match packet:
            case Connack(code=code, properties=properties) if code:
                self.closed = True
                return Refused(code, reason_text(code, _reason_string(properties)))
            case Connack(session_present=session_present, properties=properties):
                self._established = True
                self.limits = limits_of(properties, self._connect.keep_alive_s if self._connect else 0)
                self.window.limit = self.limits.receive_maximum
                return Connected(session_present, properties)
            case Auth():
                raise PeerError("the system requires an authentication exchange that we did not request")
            case _:
                raise PeerError(f"{name_of(packet)} before CONNACK")

    def _take_answer(self, packet: Packet) -> Event | None:
        """Handle a packet that only a server sends."""
        match packet:
            case Suback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, PacketType.SUBACK)
                return Subscribed(number, codes, _reason_string(properties))
            case Unsuback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, PacketType.UNSUBACK)
                return Unsubscribed(number, codes, _reason_string(properties))
            case Pingresp():
                return None  # the owner of the socket has already seen traffic
            case Disconnect(code=code, properties=properties) if self.version == V5:
                self.closed = True
                return Closed(reason_text(code, _reason_string(properties)))
            case _:
                raise PeerError(f"{name_of(packet)}, which a server must not send here")

    def _take_request(self, packet: Packet) -> Event | None:
        """Handle a packet that only a client sends."""
        match packet:
            case Pingreq():
                self._outbox.send(Pingresp())
                return None
            case Subscribe(packet_id=packet_id, filters=filters):
                return SubscribeRequested(packet_id, filters)
            case Unsubscribe(packet_id=packet_id, filters=texts):
                return UnsubscribeRequested(packet_id, texts)
            case Disconnect(code=code, properties=properties):
                self.closed = True
                return Closed(reason_text(code, _reason_string(properties)) if code >= FAILURE else "")
            case _:
                raise PeerError(f"{name_of(packet)}, which a client must not send here")


def _reason_string(properties: Properties) -> str:
    return str(properties.get(Property.REASON_STRING, ""))
