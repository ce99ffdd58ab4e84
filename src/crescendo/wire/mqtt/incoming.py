"""Which messages of the peer have we received but not yet completed?

At QoS 1 only their count matters (the receive maximum that we announced); at QoS 2 also their identifiers, because a
message that is sent again before its release is the same message. Sees no bytes.
"""

import numpy as np
import numpy.typing as npt

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.window import IDS

Ids = npt.NDArray[np.uint16]


class Incoming:
    """Messages that wait for our acknowledgement or for the peer's release."""

    def __init__(self) -> None:
        self.limit = IDS
        self.open = 0
        self._held = bytearray(IDS + 1)  # QoS 2: 1 from the message to its release
        self._held_column = np.frombuffer(self._held, np.uint8)

    def arrived(self, ids: Ids, qos: int) -> None:
        self.open += len(ids)
        if self.open > self.limit:
            raise PeerError(f"{self.open} messages without an acknowledgement where {self.limit} were agreed")
        if qos == 2:
            self._held_column[ids] = 1

    def acknowledged(self, count: int) -> None:
        self.open -= count

    def released(self, ids: Ids) -> None:
        self._held_column[ids] = 0
        self.open -= len(ids)

    def holds(self, packet_id: int) -> bool:
        return bool(self._held[packet_id])

    def holds_all(self, ids: Ids) -> bool:
        """Whether every identifier is held and none appears twice."""
        return bool(self._held_column[ids].all()) and len(np.unique(ids)) == len(ids)

    def repeats(self, ids: Ids) -> bool:
        """Whether any identifier is already held or appears twice."""
        return bool(self._held_column[ids].any()) or len(np.unique(ids)) != len(ids)
