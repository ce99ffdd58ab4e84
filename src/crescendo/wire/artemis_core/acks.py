"""How are messages acknowledged with the ids that they arrived with?

An acknowledgement is a constant frame around the id of a message. Ids are never decoded: they go back as they came, so
that a batch of acknowledgements is a tiled array.
"""

import numpy as np
import numpy.typing as npt

from crescendo.wire.artemis_core.frames import encode_frame
from crescendo.wire.artemis_core.packets import Acknowledge, AcknowledgeOne

Octets = npt.NDArray[np.uint8]

_ID_AT = 21  # after the header and the consumer
_ID_BYTES = 8


def encode_acknowledgements(
    consumer: int, ids: Octets, *, version: int, individual: bool = False, response_required: bool = False
) -> memoryview:
    """One acknowledgement per id: of this message alone, or of it and all before it."""
    kind = AcknowledgeOne if individual else Acknowledge
    unit = np.frombuffer(encode_frame(kind(consumer, 0, response_required), version), np.uint8)
    rows = np.tile(unit, (len(ids), 1))
    rows[:, _ID_AT : _ID_AT + _ID_BYTES] = ids
    return rows.reshape(-1).data
