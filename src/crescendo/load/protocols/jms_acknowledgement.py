"""How does a receiver of OpenWire or Core acknowledge?

Like the sessions of JMS, whose brokers these protocols belong to. Values only.
"""

from enum import StrEnum


class AckMode(StrEnum):
    """The `ack` of an address."""

    AUTO = "auto"  # each message, up to itself
    CLIENT = "client"  # once per read, up to the last message
    INDIVIDUAL = "individual"  # each message, without the earlier ones
