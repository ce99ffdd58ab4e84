"""Which bytes must be written, in which version of MQTT?

Packets are encoded as soon as they are queued. The owner of the socket writes them and empties the deque.
"""

from collections import deque

from crescendo.wire.mqtt.batch import Ids, acknowledgements
from crescendo.wire.mqtt.encoding import encode
from crescendo.wire.mqtt.packet_types import V5, PacketType
from crescendo.wire.mqtt.packets import Packet


class Outbox:
    """The outgoing bytes of one side."""

    __slots__ = ("outgoing", "version")

    def __init__(self) -> None:
        self.outgoing: deque[memoryview] = deque()
        self.version = V5

    def send(self, packet: Packet) -> None:
        self.outgoing.append(memoryview(encode(packet, self.version)))

    def acknowledge(self, kind: PacketType, ids: Ids) -> None:
        """Queue one successful acknowledgement per identifier."""
        self.outgoing.append(memoryview(acknowledgements(kind, ids)))
