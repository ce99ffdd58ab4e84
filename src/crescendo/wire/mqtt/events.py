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
    """To a client: the server let us in."""

    session_present: bool
    properties: Properties


class Refused(NamedTuple):
    """To a client: the server did not let us in. `code` is a reason code of MQTT 5 in both versions."""

    code: int
    reason: str


class Subscribed(NamedTuple):
    """To a client: one code for each filter of the subscription with this number."""

    number: int
    codes: tuple[int, ...]
    reason: str


class Unsubscribed(NamedTuple):
    number: int
    codes: tuple[int, ...]
    reason: str


class Deliveries(NamedTuple):
    """Messages that arrived together and look alike.

    `bodies` has one row a message and is a view into the receive buffer: it is valid until the next
    `receive_buffer()`. Identifiers are 0 at QoS 0; the others wait for `Connection.acknowledge`.
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
    """The other side is done with our messages of these numbers (first and last, both inclusive)."""

    ranges: list[tuple[int, int]]
    code: int
    batched: bool


class Closed(NamedTuple):
    """The other side says good-bye; `error` is empty when all was well."""

    error: str


class ConnectRequested(NamedTuple):
    """To a server: a client wants to come in."""

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
