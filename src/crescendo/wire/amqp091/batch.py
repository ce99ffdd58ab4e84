"""How do thousands of messages become a handful of array operations?

A published message is three frames (method, header, body), and consecutive messages differ only in the body:
`PublishBatch` tiles the frames into one buffer. `Layout` does the reverse: messages of equal length whose bytes match
the first one's, apart from delivery tag and body, are rows of one strided view. Only the scalar codec decides what a
frame means; this module only recognises repetitions.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp091.frames import (
    BODY_FRAME,
    FRAME_END,
    HEADER_FRAME,
    START_BYTES,
    encode_frame,
    encode_method_frame,
)
from crescendo.wire.amqp091.method_table import CODE_BYTES
from crescendo.wire.amqp091.methods import BasicAck, BasicDeliver, BasicPublish, Content
from crescendo.wire.amqp091.properties import NO_PROPERTIES, Properties, encode_header

Octets = npt.NDArray[np.uint8]
Tags = npt.NDArray[np.uint64]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
_WORD = 8
_FIRST_STRIDE = 64
_STRIDE_GROWTH = 16

ACK = encode_method_frame(0, BasicAck())
"""A confirm; every one has this length."""
_ACK_TAG = START_BYTES + CODE_BYTES
_ACK_MASK = np.ones(len(ACK), bool)
_ACK_MASK[_ACK_TAG : _ACK_TAG + 9] = False  # the tag, and the octet with the bit "multiple"
_CHANNEL = slice(1, 3)


class PublishBatch:
    """A reusable buffer of equal messages for one channel and one destination."""

    def __init__(
        self,
        *,
        exchange: str,
        routing_key: str,
        body_length: int,
        channel: int = 1,
        mandatory: bool = False,
        properties: Properties = NO_PROPERTIES,
        capacity: int = 0,
    ) -> None:
        self.channel = channel
        self.method = BasicPublish(0, exchange, routing_key, mandatory)
        self.properties = properties
        frames = (
            encode_method_frame(channel, self.method),
            encode_frame(HEADER_FRAME, channel, encode_header(body_length, properties)),
            encode_frame(BODY_FRAME, channel, bytes(body_length)) if body_length else b"",
        )
        self.largest_frame = max(map(len, frames))
        unit = b"".join(frames)
        self.unit_length = len(unit)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // len(unit)))
        self._octets = np.tile(np.frombuffer(unit, np.uint8), self.capacity)
        body_start = len(unit) - len(frames[2]) + START_BYTES if body_length else len(unit)
        self.bodies: Octets = self._octets.reshape(self.capacity, -1)[:, body_start : body_start + body_length]

    def frames(self, count: int) -> memoryview:
        """The first `count` messages. The caller fills in the bodies."""
        return self._octets.data[: count * self.unit_length]


class Layout(NamedTuple):
    """Where the delivery tag is in a set of similar messages, and what all other bytes before the body must be."""

    length: int
    head: npt.NDArray[np.uint64]  # the bytes before the body, in words
    mask: npt.NDArray[np.uint64]  # zero over the delivery tag and the body
    tag_start: int | None  # None: a publish, which has no tag
    body_start: int
    channel: int
    method: Content
    properties: Properties

    def matches(self, rows: Octets) -> int:
        """How many leading rows match this layout.

        Compares in growing strides: comparing everything that has arrived each time would take quadratic time when
        every message differs from the next.
        """
        words = rows[:, : self.head.size * _WORD].view(np.uint64)
        ends = rows[:, -1]
        count, stride = 0, _FIRST_STRIDE
        while count < len(words):
            chunk = words[count : count + stride]
            differs = ((chunk ^ self.head) & self.mask).any(axis=1) | (ends[count : count + stride] != FRAME_END)
            if differs.any():
                return count + int(differs.argmax())
            count += len(chunk)
            stride *= _STRIDE_GROWTH
        return count

    def tags(self, rows: Octets) -> Tags | None:
        if self.tag_start is None:
            return None
        return rows[:, self.tag_start : self.tag_start + _WORD].view(">u8")[:, 0].astype(np.uint64)


def layout_of(
    octets: memoryview, channel: int, method: Content, properties: Properties, body_length: int
) -> Layout | None:
    """The layout of a decoded message, or None when similar messages cannot be recognised by their bytes alone."""
    if not isinstance(method, BasicDeliver | BasicPublish) or body_length < _WORD:
        return None  # too short to pad the head to whole words
    tag_start = None
    if isinstance(method, BasicDeliver):
        tag_start = START_BYTES + CODE_BYTES + 1 + octets[START_BYTES + CODE_BYTES]  # after the consumer tag
    body_start = len(octets) - 1 - body_length
    words = -(-body_start // _WORD)
    mask = np.full(words * _WORD, 0xFF, np.uint8)
    if tag_start is not None:
        mask[tag_start : tag_start + _WORD] = 0
    mask[body_start:] = 0
    head = np.frombuffer(bytes(octets[: words * _WORD]), np.uint64)
    return Layout(len(octets), head, mask.view(np.uint64), tag_start, body_start, channel, method, properties)


def read_acks(buffer: memoryview, position: int) -> tuple[Tags, npt.NDArray[np.bool_]]:
    """The consecutive confirms of one channel at this position: their tags, and which of them are multiple."""
    rows = rows_of(buffer, position, len(ACK))
    expected = np.frombuffer(ACK, np.uint8).copy()
    expected[_CHANNEL] = rows[0, _CHANNEL]
    count, stride = 0, _FIRST_STRIDE
    while count < len(rows):
        chunk = rows[count : count + stride]
        differs = ((chunk != expected) & _ACK_MASK).any(axis=1)
        if differs.any():
            count += int(differs.argmax())
            break
        count += len(chunk)
        stride *= _STRIDE_GROWTH
    tags = rows[:count, _ACK_TAG : _ACK_TAG + _WORD].view(">u8")[:, 0].astype(np.uint64)
    return tags, (rows[:count, _ACK_TAG + _WORD] & 1).astype(bool)


def rows_of(buffer: memoryview, position: int, length: int) -> Octets:
    """The bytes from `position` on as rows of `length` bytes, without an incomplete last row."""
    count = (len(buffer) - position) // length
    return np.frombuffer(buffer, np.uint8, count * length, position).reshape(count, length)
