"""How are messages acknowledged with the ids that they arrived with?

An acknowledgement is a constant frame around the id of a message. Ids and destinations are never decoded: they go back
as they came, so that one acknowledgement costs little and a batch of them is a tiled array.
"""

import numpy as np
import numpy.typing as npt

from crescendo.wire.java_primitives import ABSENT, BYTE, INT, encode_boolean
from crescendo.wire.openwire.frames import LENGTH_BYTES, encode_frame
from crescendo.wire.openwire.identifiers import ConsumerId, TransactionId
from crescendo.wire.openwire.messages import AckType, MessageAck
from crescendo.wire.openwire.structures import encode_nested

Octets = npt.NDArray[np.uint8]

_ACK_CODE = encode_frame(MessageAck(), 1)[LENGTH_BYTES : LENGTH_BYTES + 1]
_POISON_CAUSE_SINCE = 7


class AckEncoder:
    """Acknowledgements of one kind for one consumer."""

    def __init__(
        self,
        version: int,
        *,
        destination: bytes,
        consumer: ConsumerId,
        ack_type: AckType = AckType.STANDARD,
        transaction: TransactionId | None = None,
        command_id: int = 0,
        response_required: bool = False,
    ) -> None:
        self._before_ids = (
            _ACK_CODE
            + INT.pack(command_id)
            + encode_boolean(response_required)
            + destination
            + encode_nested(transaction, version)
            + encode_nested(consumer, version)
            + BYTE.pack(ack_type)
        )
        self._after_count = ABSENT if version >= _POISON_CAUSE_SINCE else b""

    def span(self, first_id: bytes, last_id: bytes, count: int) -> memoryview:
        """One acknowledgement of `count` messages, the first and last of which have these ids."""
        octets = self._before_ids + first_id + last_id + INT.pack(count) + self._after_count
        return memoryview(len(octets).to_bytes(LENGTH_BYTES, "big") + octets)

    def each(self, ids: Octets) -> memoryview:
        """One acknowledgement per id."""
        unit = np.frombuffer(self.span(ABSENT, ids[0].tobytes(), 1), np.uint8)
        rows = np.tile(unit, (len(ids), 1))
        at = LENGTH_BYTES + len(self._before_ids) + len(ABSENT)
        rows[:, at : at + ids.shape[1]] = ids
        return rows.reshape(-1).data
