"""How do thousands of messages become a handful of array operations?

Messages of a fixed size share all bytes but their numbers and bodies. One frame is encoded by the scalar codec, which
also says where its fields are; it is tiled into a buffer, and the columns are patched.
"""

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from crescendo.wire.artemis_core.frames import encode_frame
from crescendo.wire.artemis_core.messages import PACKET_HEADER_BYTES, CoreMessage, encode_message, read_message
from crescendo.wire.artemis_core.packets import RoutingType, SendMessage
from crescendo.wire.artemis_core.primitives import Reader
from crescendo.wire.artemis_core.properties import JavaByte, Property, encode_properties
from crescendo.wire.response_window import RESPONSE_NUMBERS

Octets = npt.NDArray[np.uint8]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
ROUTING_TYPE = "_AMQ_ROUTING_TYPE"
"""The property that chooses between the queues of an address and its subscriptions."""
_CORRELATION = struct.Struct(">q")
_EXPIRATION_AFTER_TYPE = 1  # after the byte for durable


def packet_of(
    number: int,
    body: bytes,
    *,
    producer: int,
    address: str,
    routing_type: RoutingType = RoutingType.ANYCAST,
    response_required: bool = True,
    durable: bool = False,
    priority: int | None = None,
    expiration_ms: int = 0,
    properties: Mapping[str, Property] | None = None,
) -> SendMessage:
    """The n-th message of a session, counted from 0. It has no timestamp, like one of a client that disabled it."""
    message = CoreMessage(
        address=address,
        durable=durable,
        expiration_ms=expiration_ms,
        priority=4 if priority is None else priority,
        properties=encode_properties({ROUTING_TYPE: JavaByte(routing_type), **(properties or {})}),
        body=body,
    )
    return SendMessage(message, response_required, number % RESPONSE_NUMBERS, producer)


class SendBatch:
    """A reusable buffer of equal messages, made from one of them."""

    def __init__(self, packet: SendMessage, version: int, *, capacity: int = 0) -> None:
        frame = encode_frame(packet, version)
        message_end = PACKET_HEADER_BYTES + len(encode_message(packet.message))
        _, spans = read_message(Reader(memoryview(frame), PACKET_HEADER_BYTES, message_end))
        self.frame_length = length = len(frame)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // length))
        self._octets = np.tile(np.frombuffer(frame, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, length)
        self.bodies: Octets = rows[:, spans.body_start : spans.body_end]
        self._view = self._octets.data
        self._correlation_at = spans.end + 1  # after the byte that asks for a response
        self._correlations = _column(rows, self._correlation_at)
        self._expirations = _column(rows, spans.after_type + _EXPIRATION_AFTER_TYPE)
        self._expiration_ms = packet.message.expiration_ms
        self._offsets = np.arange(self.capacity, dtype=np.int64)

    def frames(self, first_number: int, count: int, *, expiration_ms: int = 0) -> memoryview:
        """Number the first `count` messages and return their bytes; the caller fills in the bodies."""
        first = first_number % RESPONSE_NUMBERS
        if count == 1:  # for one message, array operations would dominate the cost
            _CORRELATION.pack_into(self._view, self._correlation_at, first)
        else:
            numbers = self._offsets[:count] + first
            if numbers[-1] >= RESPONSE_NUMBERS:
                numbers %= RESPONSE_NUMBERS
            self._correlations[:count] = numbers
        if expiration_ms != self._expiration_ms:
            self._expirations[:] = self._expiration_ms = expiration_ms
        return self._view[: count * self.frame_length]


def _column(rows: Octets, at: int) -> npt.NDArray[np.int64]:
    column: npt.NDArray[np.int64] = rows[:, at : at + 8].view(">i8")[:, 0]
    return column
