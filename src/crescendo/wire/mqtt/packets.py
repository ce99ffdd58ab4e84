"""What do the packets of MQTT contain?

One frozen value per packet type, the same for both versions; MQTT 3.1.1 omits the fields that only MQTT 5 has.
`encoding.py` and `decoding.py` turn them into bytes and back.
"""

from msgspec import Struct

from crescendo.wire.mqtt.packet_types import V5, PacketType
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties
from crescendo.wire.mqtt.reasons import Reason


class Will(Struct, frozen=True):
    """The message that the server publishes when the client disappears."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(Struct, frozen=True):
    """A client's request to connect."""

    client_id: str
    version: int = V5
    clean: bool = True
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class Connack(Struct, frozen=True):
    """The server's answer to CONNECT; `code` is an MQTT 5 reason code in both versions."""

    code: int = Reason.SUCCESS
    session_present: bool = False
    properties: Properties = NO_PROPERTIES


class Publish(Struct, frozen=True):
    """A message. A decoded payload is a view into the received bytes."""

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
    """One subscription of a SUBSCRIBE. All fields but text and qos are MQTT 5 only."""

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
    """The packet's name in the specification."""
    return packet.kind.name if isinstance(packet, Ack) else type(packet).__name__.upper()
