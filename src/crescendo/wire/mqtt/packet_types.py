"""Which packet types does MQTT have?

The numbers in the upper half of the first byte, and the flags required in the lower half. Nothing else.
"""

from enum import IntEnum

V3, V5 = 4, 5
"""The protocol levels of MQTT 3.1.1 and MQTT 5."""


class PacketType(IntEnum):
    WILL = 0
    """Not a packet: the message inside CONNECT, which has its own properties."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


ACKNOWLEDGEMENTS = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP})


def flags_of(kind: PacketType) -> int:
    """The lower half of the first byte, for every type but PUBLISH."""
    return 0b0010 if kind in {PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE} else 0
