"""How do thousands of packets become a handful of array operations?

Out: messages of a fixed size share all bytes but packet identifier and payload; `PublishBatch` tiles one packet and
patches the columns. An acknowledgement is one number, so a batch of them is one array. In: packets of equal length
whose bytes equal the first one's, apart from identifier and payload, are rows of one strided view; a `Pattern` counts
them. Only the scalar codec decides what a packet means.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.mqtt.encoding import encode
from crescendo.wire.mqtt.packet_types import PacketType, flags_of
from crescendo.wire.mqtt.packets import Publish
from crescendo.wire.mqtt.properties import NO_PROPERTIES, Properties
from crescendo.wire.mqtt.window import ids_of

Octets = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.uint16]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16
_ACK_ID_AT = 2
_WORDS: tuple[tuple[int, type[np.unsignedinteger]], ...] = (
    (8, np.uint64), (4, np.uint32), (2, np.uint16), (1, np.uint8),
)  # fmt: skip


class PublishBatch:
    """A reusable buffer of equal messages to one topic."""

    def __init__(
        self,
        *,
        topic: str,
        body_length: int,
        qos: int,
        version: int,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        capacity: int = 0,
    ) -> None:
        self.qos = qos
        packet = encode(Publish(topic, bytes(body_length), qos, retain, False, 1, properties), version)
        self.packet_length = len(packet)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // len(packet)))
        self._octets = np.tile(np.frombuffer(packet, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, len(packet))
        self.bodies: Octets = rows[:, len(packet) - body_length :]
        self._ids: npt.NDArray[np.uint16] | None = None
        if qos:
            at = _id_at(packet)
            self._ids = rows[:, at : at + 2].view(">u2")[:, 0]

    def packets(self, first_number: int, count: int) -> memoryview:
        """Number the first `count` messages and return their bytes; the caller fills in the bodies."""
        if self._ids is not None:
            self._ids[:count] = ids_of(first_number, count)
        return self._octets.data[: count * self.packet_length]


def acknowledgements(kind: PacketType, ids: Ids) -> bytes:
    """One successful acknowledgement per identifier: four bytes each in either version."""
    head = (kind << 4 | flags_of(kind)) << 24 | 2 << 16
    return (ids.astype(np.uint32) | np.uint32(head)).astype(">u4").tobytes()


class Pattern(NamedTuple):
    """The bytes before the payload that packets of a run share, all but the identifier."""

    length: int
    head: npt.NDArray[np.unsignedinteger]  # in words
    mask: npt.NDArray[np.unsignedinteger]  # zero over identifier and payload
    id_at: int  # 0 when there is none
    body_start: int

    def matches(self, rows: Octets) -> int:
        """How many rows, counted from the first, match this pattern.

        Compares in growing strides: if every packet differed from the next, comparing all buffered rows for each of
        them would take quadratic time.
        """
        words = rows[:, : self.head.nbytes].view(self.head.dtype)
        count, stride = 0, _FIRST_STRIDE
        while count < len(words):
            some = words[count : count + stride]
            differs = ((some ^ self.head) & self.mask).any(axis=1)
            if differs.any():
                return count + int(differs.argmax())
            count += len(some)
            stride *= _STRIDE_GROWTH
        return count

    def ids(self, rows: Octets) -> Ids:
        """The identifiers; zeros if the messages have none."""
        if not self.id_at:
            return np.zeros(len(rows), np.uint16)
        return rows[:, self.id_at : self.id_at + 2].view(">u2")[:, 0].astype(np.uint16)


def pattern_of_publish(octets: memoryview, publish: Publish) -> Pattern:
    """The pattern of a message that has already been decoded."""
    return _pattern(octets, len(octets) - len(publish.payload), _id_at(octets) if publish.qos else 0)


def pattern_of_ack(octets: memoryview) -> Pattern | None:
    """The pattern of an acknowledgement; None if its length takes more than one byte."""
    return _pattern(octets, len(octets), _ACK_ID_AT) if octets[1] < 0x80 else None


def rows_of(buffer: memoryview, start: int, end: int, length: int) -> Octets:
    """All complete chunks of `length` bytes, one per row."""
    count = (end - start) // length
    return np.frombuffer(buffer, np.uint8, count * length, start).reshape(count, length)


def _pattern(octets: memoryview, body_start: int, id_at: int) -> Pattern:
    # The widest word that can compare the head without reading beyond the packet.
    width, word = next((w, kind) for w, kind in _WORDS if -(-body_start // w) * w <= len(octets))
    padded = -(-body_start // width) * width
    mask = np.full(padded, 0xFF, np.uint8)
    mask[body_start:] = 0
    if id_at:
        mask[id_at : id_at + 2] = 0
    head = np.frombuffer(bytes(octets[:padded]), word)
    return Pattern(len(octets), head, mask.view(word), id_at, body_start)


def _id_at(octets: bytes | memoryview) -> int:
    """The offset of the identifier in a well-formed message: after length and topic."""
    position = 2
    while octets[position - 1] & 0x80:
        position += 1
    return position + 2 + int.from_bytes(octets[position : position + 2], "big")
