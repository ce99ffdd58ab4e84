"""What is the state of one MQTT connection, and what follows from the bytes that arrived?

Sans-IO and for both sides: bytes go in through `receive_buffer`/`received`, events come out of `next_event`, and what
must be written stands in `outgoing`. Handshakes of QoS 2 and answers to pings happen here; acknowledging messages is
the caller's word. It reads no clock: the keep-alive is a number here, and whoever owns the socket watches it.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.batch import (
    Ids,
    Octets,
    Pattern,
    PublishBatch,
    acknowledgements,
    pattern_of_ack,
    pattern_of_publish,
    rows_of,
)
from crescendo.wire.mqtt.buffer import ReceiveBuffer
from crescendo.wire.mqtt.events import (
    Acknowledged,
    Closed,
    Connected,
    ConnectRequested,
    Deliveries,
    Event,
    Refused,
    Subscribed,
    SubscribeRequested,
    Unsubscribed,
    UnsubscribeRequested,
)
from crescendo.wire.mqtt.incoming import Incoming
from crescendo.wire.mqtt.kinds import ACKNOWLEDGEMENTS, V5, Kind
from crescendo.wire.mqtt.packets import (
    Ack,
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
)
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties, Property
from crescendo.wire.mqtt.reading import decode, packet_length
from crescendo.wire.mqtt.reasons import FAILURE, Reason, in_words
from crescendo.wire.mqtt.terms import NO_LIMIT_BYTES, Terms, terms_of
from crescendo.wire.mqtt.window import IDS, Range, Window
from crescendo.wire.mqtt.writing import encode

MAX_PACKET_BYTES = 65 * 2**20
"""The largest payload of a workload, and room for its topic and properties."""

_FEWEST_ACKS = 8  # to read fewer of them one by one costs less than to set arrays up
_ANSWER_TO = {1: Kind.PUBACK, 2: Kind.PUBREC}


class Connection:
    """One side of a connection: a client when it is given what to say in CONNECT, a server when not."""

    def __init__(
        self, connect: Connect | None = None, *, max_packet_bytes: int = MAX_PACKET_BYTES, batching: bool = True
    ) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.version = V5
        self.closed = False
        self.window = Window()
        self.terms = Terms()  # what the other side allows us
        self._server = connect is None
        self._connect = connect
        self._established = False
        self._max_packet_bytes = max_packet_bytes
        self._batching = batching
        self._buffer = ReceiveBuffer()
        self._incoming = Incoming()
        self._like_publish: tuple[Pattern, Publish] | None = None
        self._like_ack: tuple[Pattern, Ack] | None = None
        self._one_by_one = 0  # packets to go before runs are looked for again
        if connect is not None:
            self._greet(connect)
            self._say(connect)

    def _greet(self, connect: Connect) -> None:
        """From CONNECT on, both sides know the version and what the client allows the server."""
        self.version = connect.version
        properties = connect.properties
        limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS)) if connect.version == V5 else IDS
        if self._server:
            self.terms = terms_of(properties, connect.keep_alive_s)
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
        number = self.window.take(1, Kind.SUBACK)
        self._say(Subscribe(_id_of(number), tuple(filters), properties))
        return number

    def unsubscribe(self, filters: Iterable[str]) -> int:
        number = self.window.take(1, Kind.UNSUBACK)
        self._say(Unsubscribe(_id_of(number), tuple(filters)))
        return number

    def publish(self, batch: PublishBatch, count: int) -> int:
        """Queue a batch whose bodies are filled in; the number of its first message, 0 at QoS 0.

        The batch must not be touched until `outgoing` is empty.
        """
        first = self.window.take(count, _ANSWER_TO[batch.qos]) if batch.qos else 0
        self.outgoing.append(batch.packets(first, count))
        return first

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
        self._say(Publish(topic, payload, qos, retain, dup, _id_of(number), properties))
        return number

    def acknowledge(self, ids: Ids, qos: int) -> None:
        """Say that these messages have arrived: with PUBACK at QoS 1, with PUBREC at QoS 2."""
        if qos == 1:
            self._incoming.acknowledged(len(ids))
        if qos:
            self._queue(acknowledgements(_ANSWER_TO[qos], ids))

    def ping(self) -> None:
        self._say(Pingreq())

    def disconnect(self, code: int = Reason.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Say good-bye. In MQTT 3.1.1 only a client can, and without a reason."""
        if self._established and not self.closed and (self.version == V5 or not self._server):
            self._say(Disconnect(code, properties))

    # -- as a server ---------------------------------------------------------------------------------------------

    def accept(self, *, session_present: bool = False, properties: Properties = NO_PROPERTIES) -> None:
        """Let the client in."""
        if self.version == V5:
            self._incoming.limit = int(properties.get(Property.RECEIVE_MAXIMUM, IDS))
        self._established = True
        self._say(Connack(Reason.SUCCESS, session_present, properties))

    def refuse(self, code: int, reason: str = "") -> None:
        """Keep the client out."""
        self._say(Connack(code, False, {Property.REASON_STRING: reason} if reason else NO_PROPERTIES))
        self.closed = True

    def grant(self, packet_id: int, codes: tuple[int, ...]) -> None:
        """Answer a subscription: the granted QoS or a refusal for each filter."""
        self._say(Suback(packet_id, codes))

    def grant_end(self, packet_id: int, codes: tuple[int, ...]) -> None:
        self._say(Unsuback(packet_id, codes))

    # -- packets in ----------------------------------------------------------------------------------------------

    def _take(self, length: int) -> Event | None:
        buffer = self._buffer
        octets = buffer.view[buffer.start : buffer.start + length]
        kind = octets[0] >> 4
        if not self._established:
            buffer.start += length
            return self._take_greeting(decode(octets, self.version))
        if kind == Kind.PUBLISH:
            return self._take_publish(octets)
        if kind in ACKNOWLEDGEMENTS:
            return self._take_acks(octets)
        buffer.start += length
        packet = decode(octets, self.version)
        return self._take_request(packet) if self._server else self._take_answer(packet)

    def _take_greeting(self, packet: Packet) -> Event:
        if self._server:
            if not isinstance(packet, Connect) or self._connect is not None:
                raise PeerError(f"{_name(packet)} before the connection stands")
            self._connect = packet
            self._greet(packet)
            return ConnectRequested(packet)
        match packet:
            case Connack(code=code, properties=properties) if code:
                self.closed = True
                return Refused(code, in_words(code, _words(properties)))
            case Connack(session_present=session_present, properties=properties):
                self._established = True
                self.terms = terms_of(properties, self._connect.keep_alive_s if self._connect else 0)
                self.window.limit = self.terms.receive_maximum
                return Connected(session_present, properties)
            case Auth():
                raise PeerError("the system demands an exchange of authentication that nobody asked for")
            case _:
                raise PeerError(f"{_name(packet)} before CONNACK")

    def _take_answer(self, packet: Packet) -> Event | None:
        """What a server says."""
        match packet:
            case Suback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, Kind.SUBACK)
                return Subscribed(number, codes, _words(properties))
            case Unsuback(packet_id=packet_id, codes=codes, properties=properties):
                number = self.window.answered_one(packet_id, Kind.UNSUBACK)
                return Unsubscribed(number, codes, _words(properties))
            case Pingresp():
                return None  # whoever watches the socket has seen the bytes
            case Disconnect(code=code, properties=properties) if self.version == V5:
                self.closed = True
                return Closed(in_words(code, _words(properties)))
            case _:
                raise PeerError(f"{_name(packet)}, which a server does not say here")

    def _take_request(self, packet: Packet) -> Event | None:
        """What a client says."""
        match packet:
            case Pingreq():
                self._say(Pingresp())
                return None
            case Subscribe(packet_id=packet_id, filters=filters):
                return SubscribeRequested(packet_id, filters)
            case Unsubscribe(packet_id=packet_id, filters=texts):
                return UnsubscribeRequested(packet_id, texts)
            case Disconnect(code=code, properties=properties):
                self.closed = True
                return Closed(in_words(code, _words(properties)) if code >= FAILURE else "")
            case _:
                raise PeerError(f"{_name(packet)}, which a client does not say here")

    # -- messages in ---------------------------------------------------------------------------------------------

    def _looks_for_runs(self) -> bool:
        """A run that had to be taken apart is not looked at again for each of its packets: that would be quadratic."""
        if self._one_by_one:
            self._one_by_one -= 1
            return False
        return self._batching

    def _take_publish(self, octets: memoryview) -> Event | None:
        buffer = self._buffer
        length = len(octets)
        # A message that is alone costs less when it is simply decoded.
        several = buffer.end - buffer.start >= 2 * length and self._looks_for_runs()
        known = self._like_publish
        if several and known is not None and known[0].length == length:
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            if count := known[0].matches(rows):
                return self._deliver_run(*known, rows[:count])
        publish = decode(octets, self.version)
        assert isinstance(publish, Publish)  # noqa: S101 - narrows the type for mypy
        if Property.TOPIC_ALIAS in publish.properties:
            raise PeerError("a topic alias, where none was allowed")
        if several:
            pattern = pattern_of_publish(octets, publish)
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            count = pattern.matches(rows)
            if count > 1:
                self._like_publish = pattern, publish
                return self._deliver_run(pattern, publish, rows[:count])
        return self._deliver_one(publish, length)

    def _deliver_run(self, pattern: Pattern, publish: Publish, rows: Octets) -> Event | None:
        ids = pattern.ids(rows)
        if publish.qos:
            if not ids.all():
                raise PeerError("a packet identifier is 0")
            if publish.qos == 2 and self._incoming.repeats(ids):
                self._one_by_one = len(ids)
                return None  # the loop comes back to the first of them, and takes them apart
            self._incoming.came(ids, publish.qos)
        self._buffer.start += rows.size
        bodies = rows[:, pattern.body_start :]
        return Deliveries(
            publish.topic, publish.qos, publish.retain, publish.dup, ids, bodies, publish.properties, True
        )  # fmt: skip

    def _deliver_one(self, publish: Publish, length: int) -> Event | None:
        self._buffer.start += length
        ids = np.array([publish.packet_id], np.uint16)
        if publish.qos == 2 and self._incoming.holds(publish.packet_id):
            # It was handed out before and is not released yet: only its acknowledgement got lost.
            self._queue(acknowledgements(Kind.PUBREC, ids))
            return None
        if publish.qos:
            self._incoming.came(ids, publish.qos)
        body = np.frombuffer(publish.payload, np.uint8).reshape(1, -1)
        return Deliveries(
            publish.topic, publish.qos, publish.retain, publish.dup, ids, body, publish.properties, False
        )  # fmt: skip

    # -- acknowledgements in -------------------------------------------------------------------------------------

    def _take_acks(self, octets: memoryview) -> Event | None:
        buffer = self._buffer
        length = len(octets)
        if buffer.end - buffer.start >= _FEWEST_ACKS * length and self._looks_for_runs():
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            known = self._like_ack
            count = known[0].matches(rows) if known is not None and known[0].length == length else 0
            if not count and (pattern := pattern_of_ack(octets)) is not None:
                self._like_ack = known = pattern, _as_ack(decode(octets, self.version))
                count = pattern.matches(rows)
            if count > 1 and known is not None:
                ids = known[0].ids(rows[:count])
                if not ids.all():
                    raise PeerError("a packet identifier is 0")
                if known[1].kind is not Kind.PUBREL or self._incoming.holds_all(ids):
                    buffer.start += count * length
                    return self._answered(known[1], ids)
                self._one_by_one = count - 1
        buffer.start += length
        return self._answered_one(_as_ack(decode(octets, self.version)))

    def _answered(self, ack: Ack, ids: Ids) -> Event | None:
        """A run of equal acknowledgements."""
        kind = ack.kind
        if kind is Kind.PUBREL:
            self._incoming.released(ids)
            self._queue(acknowledgements(Kind.PUBCOMP, ids))
            return None
        if kind is Kind.PUBREC and ack.code < FAILURE:
            self.window.answered(ids, kind, then=Kind.PUBCOMP)
            self._queue(acknowledgements(Kind.PUBREL, ids))
            return None
        return Acknowledged(self.window.answered(ids, kind), ack.code, True)

    def _answered_one(self, ack: Ack) -> Event | None:
        kind, packet_id = ack.kind, ack.packet_id
        if kind is Kind.PUBREL:
            # A session that was kept may release what an earlier connection received.
            known = self._incoming.holds(packet_id)
            if known:
                self._incoming.released(np.array([packet_id], np.uint16))
            self._say(Ack(Kind.PUBCOMP, packet_id, Reason.SUCCESS if known else Reason.ID_NOT_FOUND))
            return None
        if kind is Kind.PUBREC and ack.code < FAILURE:
            self.window.answered_one(packet_id, kind, then=Kind.PUBCOMP)
            self._say(Ack(Kind.PUBREL, packet_id))
            return None
        number: int = self.window.answered_one(packet_id, kind)
        done: list[Range] = [(number, number)]
        return Acknowledged(done, ack.code, False)

    # -- packets out ---------------------------------------------------------------------------------------------

    def _say(self, packet: Packet) -> None:
        self._queue(encode(packet, self.version))

    def _queue(self, octets: bytes) -> None:
        self.outgoing.append(memoryview(octets))


def _id_of(number: int) -> int:
    return number % IDS + 1


def _words(properties: Properties) -> str:
    return str(properties.get(Property.REASON_STRING, ""))


def _name(packet: Packet) -> str:
    return packet.kind.name if isinstance(packet, Ack) else type(packet).__name__.upper()


def _as_ack(packet: Packet) -> Ack:
    if not isinstance(packet, Ack):
        raise PeerError(f"{_name(packet)} where an acknowledgement was announced")
    return packet
