"""What can happen on an MQTT connection?

The events that `Connection.next_event` yields, to a client or to a server. Messages come in batches; a single one is a
batch of one, so there is one way to handle them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.mqtt.packets import Connect, Filter
from crescendo.wire.mqtt.properties import Properties


class Connected(NamedTuple):
    """To a client: the server accepted the connection."""

    session_present: bool
    properties: Properties


class Refused(NamedTuple):
    """To a client: the server refused the connection. `code` is an MQTT 5 reason code in both versions."""

    code: int
    reason: str


class Subscribed(NamedTuple):
    """To a client: one code per filter of the subscription with this number."""

    number: int
    codes: tuple[int, ...]
    reason: str


class Unsubscribed(NamedTuple):
    number: int
    codes: tuple[int, ...]
    reason: str


class Deliveries(NamedTuple):
    """Messages that arrived together and differ only in identifier and payload.

    `bodies` has one row per message and is a view into the receive buffer: it is valid until the next
    `receive_buffer()`. Identifiers are 0 at QoS 0; at other levels the caller must call `Connection.acknowledge`.
    """

    topic: str
    qos: int
    retain: bool
    redelivered: bool
    ids: npt.NDArray[np.uint16]
    bodies: npt.NDArray[np.uint8]
    properties: Properties
    batched: bool


class Acknowledged(NamedTuple):
    """The peer has settled our messages with these numbers (first and last, both inclusive)."""

    ranges: list[tuple[int, int]]
    code: int
    batched: bool


class Closed(NamedTuple):
    """The peer disconnected; `error` is empty after a normal disconnect."""

    error: str


class ConnectRequested(NamedTuple):
    """To a server: a client asks to connect."""

    connect: Connect


class SubscribeRequested(NamedTuple):
    packet_id: int
    filters: tuple[Filter, ...]


class UnsubscribeRequested(NamedTuple):
    packet_id: int
    filters: tuple[str, ...]


Event = (
    Connected | Refused | Subscribed | Unsubscribed | Deliveries | Acknowledged | Closed
    | ConnectRequested | SubscribeRequested | UnsubscribeRequested
)  # fmt: skip
