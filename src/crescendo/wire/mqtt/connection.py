"""What is the state of one MQTT connection, and what follows from the bytes that arrived?

Sans-IO and for both sides: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and what
must be written stands in `outgoing`. Handshakes of QoS 2 go on and pings are answered unasked; acknowledging messages
is the caller's word. It reads no clock: the keep-alive is a number here, and whoever owns the socket watches it.
"""

from collections.abc import Iterable

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.arrivals import Arrivals
from crescendo.wire.mqtt.batch import Ids, PublishBatch
from crescendo.wire.mqtt.buffer import ReceiveBuffer
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
from crescendo.wire.mqtt.reasons import FAILURE, Reason, in_words
from crescendo.wire.mqtt.window import IDS, Window, id_of

MAX_PACKET_BYTES = 65 * 2**20
"""The largest payload of a workload, and room for its topic and properties."""

_ANSWER_TO = {1: PacketType.PUBACK, 2: PacketType.PUBREC}


class Connection:
    """One side of a connection: a client when it is given what to say in CONNECT, a server when not."""

    def __init__(
        self, connect: Connect | None = None, *, max_packet_bytes: int = MAX_PACKET_BYTES, batching: bool = True
    ) -> None:
        self._voice = Outbox()
        self.outgoing = self._voice.outgoing
        self.closed = False
        self.window = Window()
        self.terms = Limits()  # what the other side allows us
        self._server = connect is None
        self._connect = connect
        self._established = False
        self._max_packet_bytes = max_packet_bytes
        self._buffer = ReceiveBuffer()
        self._incoming = Incoming()
        self._arrivals = Arrivals(self._buffer, self._voice, self.window, self._incoming, batching=batching)
        if connect is not None:
            self._greet(connect)
            self._voice.send(connect)

    @property
    def version(self) -> int:
        return self._voice.version

    def _greet(self, connect: Connect) -> None:
        """From CONNECT on, both sides know the version and what the client allows the server."""
        self._voice.version = connect.version
        properties = connect.properties
        limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS)) if connect.version == V5 else IDS
        if self._server:
            self.terms = limits_of(properties, connect.keep_alive_s)
            self.window.limit = limit
        else:
            self._incoming.limit = limit
            announced = int(properties.get(Property.MAXIMUM_PACKET_SIZE, NO_LIMIT_BYTES))
            self._max_packet_bytes = min(self._max_packet_bytes, announced)

    # -- bytes in ------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Views of earlier deliveries are void from here on."""
        return self._buffer.space()

    def received(self, count: int) -> None:
        """`count` bytes have been put into the receive buffer."""
        self._buffer.filled(count)

    @property
    def undecoded_bytes(self) -> int:
        """What has come and was not asked for by `next_event` yet, or is not complete."""
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

    # -- things to say -------------------------------------------------------------------------------------------

    def subscribe(self, filters: Iterable[Filter], *, subscription_id: int = 0) -> int:
        """Ask for messages; the number under which the answer comes."""
        properties: Properties = {Property.SUBSCRIPTION_ID: (subscription_id,)} if subscription_id else NO_PROPERTIES
        number = self.window.take(1, PacketType.SUBACK)
        self._voice.send(Subscribe(id_of(number), tuple(filters), properties))
        return number

    def unsubscribe(self, filters: Iterable[str]) -> int:
        number = self.window.take(1, PacketType.UNSUBACK)
        self._voice.send(Unsubscribe(id_of(number), tuple(filters)))
        return number

    def publish(self, batch: PublishBatch, count: int) -> int:
        """Queue a batch whose bodies are filled in; the number of its first message, 0 at QoS 0.

        The batch must not be touched until `outgoing` is empty.
        """
        first = self.window.take(count, _ANSWER_TO[batch.qos]) if batch.qos else 0
        self.outgoing.append(batch.packets(first, count))
        return first

    def prepared(self, batch: PublishBatch, count: int) -> memoryview:
        """The messages of a batch as they would leave next; whoever writes them says so with `published`."""
        return batch.packets(self.window.next_number, count)

    def published(self, batch: PublishBatch, count: int) -> None:
        """So many prepared messages were written."""
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
        """Queue one message by the scalar path; its number, 0 at QoS 0."""
        number = self.window.take(1, _ANSWER_TO[qos]) if qos else 0
        self._voice.send(Publish(topic, payload, qos, retain, dup, id_of(number), properties))
        return number

    def acknowledge(self, ids: Ids, qos: int) -> None:
        """Say that these messages have arrived: with PUBACK at QoS 1, with PUBREC at QoS 2."""
        if qos == 1:
            self._incoming.acknowledged(len(ids))
        if qos:
            self._voice.acknowledge(_ANSWER_TO[qos], ids)

    def ping(self) -> None:
        self._voice.send(Pingreq())

    def disconnect(self, code: int = Reason.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Say good-bye. In MQTT 3.1.1 only a client can, and without a reason."""
        if self._established and not self.closed and (self.version == V5 or not self._server):
            self._voice.send(Disconnect(code, properties))

    # -- as a server ---------------------------------------------------------------------------------------------

    def accept(self, *, session_present: bool = False, properties: Properties = NO_PROPERTIES) -> None:
        """Let the client in."""
        if self.version == V5:
            self._incoming.limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS))
        self._established = True
        self._voice.send(Connack(Reason.SUCCESS, session_present, properties))

    def refuse(self, code: int, reason: str = "") -> None:
        """Keep the client out."""
        self._voice.send(Connack(code, False, {Property.REASON_STRING: reason} if reason else NO_PROPERTIES))
        self.closed = True

    def grant(self, packet_id: int, codes: tuple[int, ...]) -> None:
        """Answer a subscription: the granted QoS or a refusal for each filter."""
        self._voice.send(Suback(packet_id, codes))

    def grant_end(self, packet_id: int, codes: tuple[int, ...]) -> None:
        self._voice.send(Unsuback(packet_id, codes))

    # -- packets in ----------------------------------------------------------------------------------------------

    def _take(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        kind = octets[0] >> 4
        if not self._established:
            buffer.start += length
            return self._take_greeting(decode(octets, self.version))
        if kind == PacketType.PUBLISH:
            return self._arrivals.take_publish(octets)
        if kind in ACKNOWLEDGEMENTS:
            return self._arrivals.take_acks(octets)
        buffer.start += length
        packet = decode(octets, self.version)
        return self._take_request(packet) if self._server else self._take_answer(packet)

    def _take_greeting(self, packet: Packet) -> Event:
        if self._server:
            if not isinstance(packet, Connect) or self._connect is not None:
                raise PeerError(f"{name_of(packet)} before the connection stands")
            self._connect = packet
            self._greet(packet)
            return ConnectRequested(packet)
        match packet:
            case Connack(code=code, properties=properties) if code:
                self.closed = True
                return Refused(code, in_words(code, _words(properties)))
            case Connack(session_present=session_present, properties=properties):
                self._established = True
                self.terms = limits_of(properties, self._connect.keep_alive_s if self._connect else 0)
                self.window.limit = self.terms.receive_maximum
                return Connected(session_present, properties)
            case Auth():
                raise PeerError("the system demands an exchange of authentication that nobody asked for")
            case _:
                raise PeerError(f"{name_of(packet)} before CONNACK")

    def _take_answer(self, packet: Packet) -> Event | None:
        """What a server says."""
        match packet:
            case Suback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, PacketType.SUBACK)
                return Subscribed(number, codes, _words(properties))
            case Unsuback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, PacketType.UNSUBACK)
                return Unsubscribed(number, codes, _words(properties))
            case Pingresp():
                return None  # whoever watches the socket has seen the bytes
            case Disconnect(code=code, properties=properties) if self.version == V5:
                self.closed = True
                return Closed(in_words(code, _words(properties)))
            case _:
                raise PeerError(f"{name_of(packet)}, which a server does not say here")

    def _take_request(self, packet: Packet) -> Event | None:
        """What a client says."""
        match packet:
            case Pingreq():
                self._voice.send(Pingresp())
                return None
            case Subscribe(packet_id=packet_id, filters=filters):
                return SubscribeRequested(packet_id, filters)
            case Unsubscribe(packet_id=packet_id, filters=texts):
                return UnsubscribeRequested(packet_id, texts)
            case Disconnect(code=code, properties=properties):
                self.closed = True
                return Closed(in_words(code, _words(properties)) if code >= FAILURE else "")
            case _:
                raise PeerError(f"{name_of(packet)}, which a client does not say here")


def _words(properties: Properties) -> str:
    return str(properties.get(Property.REASON_STRING, ""))
