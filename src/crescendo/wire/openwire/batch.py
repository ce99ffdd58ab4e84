"""How do thousands of messages become a handful of array operations?

Messages of a fixed size share all bytes but their numbers and bodies. One frame is encoded by the scalar codec, which
also says where its fields are; it is tiled into a buffer, and the columns are patched.
"""

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from crescendo.wire.openwire.frames import decode_frame, encode_frame
from crescendo.wire.openwire.identifiers import Destination, MessageId, ProducerId, TransactionId
from crescendo.wire.openwire.messages import BytesMessage
from crescendo.wire.openwire.primitive_map import Primitive, encode_map
from crescendo.wire.openwire.structures import FieldSpan
from crescendo.wire.response_window import RESPONSE_NUMBERS

Octets = npt.NDArray[np.uint8]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
COMMAND_IDS = RESPONSE_NUMBERS
"""Other commands have negative ids."""
_COMMAND_ID = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")


def message_of(
    number: int,
    body: bytes,
    *,
    producer: ProducerId,
    destination: Destination,
    response_required: bool = True,
    persistent: bool = False,
    priority: int | None = None,
    expiration_ms: int = 0,
    properties: Mapping[str, Primitive] | None = None,
    transaction: TransactionId | None = None,
) -> BytesMessage:
    """The n-th message of a producer, counted from 0. It has no timestamp, like one of a client that disabled it."""
    return BytesMessage(
        command_id=number % COMMAND_IDS,
        response_required=response_required,
        producer_id=producer,
        destination=destination,
        transaction_id=transaction,
        message_id=MessageId(producer=producer, sequence=number + 1),
        persistent=persistent,
        expiration_ms=expiration_ms,
        priority=4 if priority is None else priority,
        content=body,
        properties=encode_map(properties) if properties else None,
    )


class MessageBatch:
    """A reusable buffer of equal messages, made from one of them."""

    def __init__(self, message: BytesMessage, version: int, *, capacity: int = 0) -> None:
        frame = encode_frame(message, version)
        spans: list[FieldSpan] = []
        decode_frame(memoryview(frame), version, spans)
        at = {(span.owner, span.field): span for span in spans}
        self.frame_length = length = len(frame)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // length))
        self._octets = np.tile(np.frombuffer(frame, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, length)
        content_end = at[BytesMessage, "content"].end
        self.bodies: Octets = rows[:, content_end - len(message.content or b"") : content_end]
        self._view = self._octets.data
        self._command_id_at = at[BytesMessage, "command_id"].start
        self._sequence_at = at[MessageId, "sequence"].start
        self._command_ids = _column(rows, self._command_id_at, ">u4")
        self._sequences = _column(rows, self._sequence_at, ">u8")
        self._expirations = _column(rows, at[BytesMessage, "expiration_ms"].start, ">u8")
        self._expiration_ms = message.expiration_ms
        self._offsets = np.arange(self.capacity, dtype=np.int64)

    def frames(self, first_number: int, count: int, *, expiration_ms: int = 0) -> memoryview:
        """Number the first `count` messages and return their bytes; the caller fills in the bodies."""
        if count == 1:  # for one message, array operations would dominate the cost
            _COMMAND_ID.pack_into(self._view, self._command_id_at, first_number % COMMAND_IDS)
            _SEQUENCE.pack_into(self._view, self._sequence_at, first_number + 1)
        else:
            command_ids = self._offsets[:count] + first_number % COMMAND_IDS
            if command_ids[-1] >= COMMAND_IDS:
                command_ids %= COMMAND_IDS
            self._command_ids[:count] = command_ids
            self._sequences[:count] = self._offsets[:count] + (first_number + 1)
        if expiration_ms != self._expiration_ms:
            self._expirations[:] = self._expiration_ms = expiration_ms
        return self._view[: count * self.frame_length]


def _column(rows: Octets, at: int, kind: str) -> npt.NDArray[np.unsignedinteger]:
    column: npt.NDArray[np.unsignedinteger] = rows[:, at : at + np.dtype(kind).itemsize].view(kind)[:, 0]
    return column
