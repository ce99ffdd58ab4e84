"""What does the peer of an MQTT connection allow?

MQTT 5 states it in properties of CONNECT and CONNACK; a missing property has a default, as does all of MQTT 3.1.1. Only
states the limits: the sender must respect them.
"""

from msgspec import Struct

from crescendo.wire.mqtt.properties import Properties, Property
from crescendo.wire.mqtt.window import IDS

NO_LIMIT_BYTES = 5 + 268_435_455
"""The largest packet whose length MQTT can encode."""


class Limits(Struct, frozen=True):
    receive_maximum: int = IDS
    max_packet_bytes: int = NO_LIMIT_BYTES
    maximum_qos: int = 2
    retain_available: bool = True
    wildcard_available: bool = True
    shared_available: bool = True
    keep_alive_s: int = 0
    assigned_client_id: str = ""


def limits_of(properties: Properties, keep_alive_s: int) -> Limits:
    """The limits that these properties state; `keep_alive_s` is what the client requested."""
    return Limits(
        receive_maximum=properties.get(Property.RECEIVE_MAXIMUM, IDS),
        max_packet_bytes=properties.get(Property.MAXIMUM_PACKET_SIZE, NO_LIMIT_BYTES),
        maximum_qos=int(properties.get(Property.MAXIMUM_QOS, 2)),
        retain_available=properties.get(Property.RETAIN_AVAILABLE, True),
        wildcard_available=properties.get(Property.WILDCARD_AVAILABLE, True),
        shared_available=properties.get(Property.SHARED_AVAILABLE, True),
        keep_alive_s=properties.get(Property.SERVER_KEEP_ALIVE_S, keep_alive_s),
        assigned_client_id=properties.get(Property.ASSIGNED_CLIENT_ID, ""),
    )
