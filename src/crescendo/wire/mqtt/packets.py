"""What do the packets of MQTT say?

One frozen value for each, the same for both versions; fields that only MQTT 5 has are left out when MQTT 3.1.1 is
written. Writing and reading them is `writing.py` and `reading.py`.
"""

from msgspec import Struct

from crescendo.wire.mqtt.packet_types import V5, PacketType
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties
from crescendo.wire.mqtt.reasons import Reason


class Will(Struct, frozen=True):
    """The message that the server publishes when we vanish."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(Struct, frozen=True):
    """Let me in."""

    client_id: str
    version: int = V5
    clean: bool = True
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class Connack(Struct, frozen=True):
    """You are in, or not; `code` is a reason code in both versions."""

    code: int = Reason.SUCCESS
    session_present: bool = False
    properties: Properties = NO_PROPERTIES


class Publish(Struct, frozen=True):
    """A message. The payload of one that was read is a view into the bytes that were read."""

    topic: str
    payload: bytes | memoryview
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class Ack(Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: PacketType
    packet_id: int
    code: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Filter(Struct, frozen=True):
    """One subscription of a SUBSCRIBE. All but text and qos is MQTT 5 only."""

    text: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, frozen=True):
    packet_id: int
    filters: tuple[Filter, ...]
    properties: Properties = NO_PROPERTIES


class Suback(Struct, frozen=True):
    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(Struct, frozen=True):
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(Struct, frozen=True):
    """MQTT 3.1.1 has no codes here."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(Struct, frozen=True):
    pass


class Pingresp(Struct, frozen=True):
    pass


class Disconnect(Struct, frozen=True):
    code: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Auth(Struct, frozen=True):
    """MQTT 5 only."""

    code: int = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect | Connack | Publish | Ack | Subscribe | Suback | Unsubscribe | Unsuback
    | Pingreq | Pingresp | Disconnect | Auth
)  # fmt: skip


def name_of(packet: Packet) -> str:
    """What the specification calls it."""
    return packet.kind.name if isinstance(packet, Ack) else type(packet).__name__.upper()
