"""Which messages and acknowledgements have arrived, and which of them can be handled as one batch?

The batch path: packets that differ from the previous one only in identifier and payload are taken together, all others
one by one. QoS 2 handshakes are continued here. Only the scalar codec decides what a packet means.
"""

import numpy as np

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.batch import Ids, Octets, Pattern, pattern_of_ack, pattern_of_publish, rows_of
from crescendo.wire.mqtt.decoding import decode
from crescendo.wire.mqtt.events import Acknowledged, Deliveries, Event
from crescendo.wire.mqtt.incoming import Incoming
from crescendo.wire.mqtt.outbox import Outbox
from crescendo.wire.mqtt.packet_types import PacketType
from crescendo.wire.mqtt.packets import Ack, Packet, Publish, name_of
from crescendo.wire.mqtt.properties import Property
from crescendo.wire.mqtt.reasons import FAILURE, Reason
from crescendo.wire.mqtt.window import Range, Window
from crescendo.wire.receive_buffer import ReceiveBuffer

_MIN_ACK_RUN = 8  # below this, decoding them one by one is cheaper than setting up arrays


class Arrivals:
    """Takes messages and acknowledgements from the buffer, and sends the answers that are due at once."""

    def __init__(
        self, buffer: ReceiveBuffer, outbox: Outbox, window: Window, incoming: Incoming, *, batching: bool
    ) -> None:
        self._buffer = buffer
        self._outbox = outbox
        self._window = window  # of our own messages, to which acknowledgements refer
        self._incoming = incoming  # the peer's messages
        self._batching = batching
        self._publish_pattern: tuple[Pattern, Publish] | None = None
        self._ack_pattern: tuple[Pattern, Ack] | None = None
        self._singles_due = 0  # packets to take one by one before the next search for a run

    def take_publish(self, octets: memoryview) -> Event | None:
        buffer = self._buffer
        length = len(octets)
        # A single message is cheaper to decode than to batch.
        several = buffer.end - buffer.start >= 2 * length and self._may_batch()
        known = self._publish_pattern
        if several and known is not None and known[0].length == length:
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            if count := known[0].matches(rows):
                return self._deliver_run(*known, rows[:count])
        publish = decode(octets, self._outbox.version)
        assert isinstance(publish, Publish)  # noqa: S101 - narrows the type for mypy
        if Property.TOPIC_ALIAS in publish.properties:
            raise PeerError("a topic alias where none was allowed")
        if several:
            pattern = pattern_of_publish(octets, publish)
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            count = pattern.matches(rows)
            if count > 1:
                self._publish_pattern = pattern, publish
                return self._deliver_run(pattern, publish, rows[:count])
        return self._deliver_one(publish, length)

    def _deliver_run(self, pattern: Pattern, publish: Publish, rows: Octets) -> Event | None:
        ids = pattern.ids(rows)
        if publish.qos:
            if not ids.all():
                raise PeerError("a packet identifier is 0")
            if publish.qos == 2 and self._incoming.repeats(ids):
                self._singles_due = len(ids)
                return None  # the loop starts over at the first of them and takes them one by one
            self._incoming.arrived(ids, publish.qos)
        self._buffer.start += rows.size
        bodies = rows[:, pattern.body_start :]
        return Deliveries(
            publish.topic, publish.qos, publish.retain, publish.dup, ids, bodies, publish.properties, True
        )  # fmt: skip

    def _deliver_one(self, publish: Publish, length: int) -> Event | None:
        self._buffer.start += length
        ids = np.array([publish.packet_id], np.uint16)
        if publish.qos == 2 and self._incoming.holds(publish.packet_id):
            # Already delivered and not yet released: only its acknowledgement was lost.
            self._outbox.acknowledge(PacketType.PUBREC, ids)
            return None
        if publish.qos:
            self._incoming.arrived(ids, publish.qos)
        body = np.frombuffer(publish.payload, np.uint8).reshape(1, -1)
        return Deliveries(
            publish.topic, publish.qos, publish.retain, publish.dup, ids, body, publish.properties, False
        )  # fmt: skip

    def take_acks(self, octets: memoryview) -> Event | None:
        buffer = self._buffer
        length = len(octets)
        if buffer.end - buffer.start >= _MIN_ACK_RUN * length and self._may_batch():
            rows = rows_of(buffer.view, buffer.start, buffer.end, length)
            known = self._ack_pattern
            count = known[0].matches(rows) if known is not None and known[0].length == length else 0
            if not count and (pattern := pattern_of_ack(octets)) is not None:
                self._ack_pattern = known = pattern, _as_ack(decode(octets, self._outbox.version))
                count = pattern.matches(rows)
            if count > 1 and known is not None:
                ids = known[0].ids(rows[:count])
                if not ids.all():
                    raise PeerError("a packet identifier is 0")
                if known[1].kind is not PacketType.PUBREL or self._incoming.holds_all(ids):
                    buffer.start += count * length
                    return self._take_ack_run(known[1], ids)
                self._singles_due = count - 1
        buffer.start += length
        return self._take_ack(_as_ack(decode(octets, self._outbox.version)))

    def _take_ack_run(self, ack: Ack, ids: Ids) -> Event | None:
        """Handle a run of equal acknowledgements."""
        kind = ack.kind
        if kind is PacketType.PUBREL:
            self._incoming.released(ids)
            self._outbox.acknowledge(PacketType.PUBCOMP, ids)
            return None
        if kind is PacketType.PUBREC and ack.code < FAILURE:
            self._window.answered(ids, kind, then=PacketType.PUBCOMP)
            self._outbox.acknowledge(PacketType.PUBREL, ids)
            return None
        return Acknowledged(self._window.answered(ids, kind), ack.code, True)

    def _take_ack(self, ack: Ack) -> Event | None:
        kind, packet_id = ack.kind, ack.packet_id
        if kind is PacketType.PUBREL:
            # A resumed session may release a message that an earlier connection received.
            known = self._incoming.holds(packet_id)
            if known:
                self._incoming.released(np.array([packet_id], np.uint16))
            self._outbox.send(Ack(PacketType.PUBCOMP, packet_id, Reason.SUCCESS if known else Reason.ID_NOT_FOUND))
            return None
        if kind is PacketType.PUBREC and ack.code < FAILURE:
            self._window.answered_one(packet_id, kind, then=PacketType.PUBCOMP)
            self._outbox.send(Ack(PacketType.PUBREL, packet_id))
            return None
        number: int = self._window.answered_one(packet_id, kind)
        done: list[Range] = [(number, number)]
        return Acknowledged(done, ack.code, False)

    def _may_batch(self) -> bool:
        """Not inside a run that had to be split: searching it again for each of its packets would be quadratic."""
        if self._singles_due:
            self._singles_due -= 1
            return False
        return self._batching


def _as_ack(packet: Packet) -> Ack:
    if not isinstance(packet, Ack):
        raise PeerError(f"{name_of(packet)} where an acknowledgement was announced")
    return packet
