"""How do thousands of transfers become a handful of array operations?

Transfers of one size differ only in a few numbers and the body. `TransferBatch` tiles one frame into a buffer and
patches delivery ids, tags and bodies column by column. `Layout` does the reverse: frames of equal length whose bytes
match the first one's, apart from id, tag and body, are rows of one strided view. Only the scalar codec decides what a
frame means; this module only recognises repetitions.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.amqp10.decoding import skip
from crescendo.wire.amqp10.frames import Body, Frame, encode_frame, encode_message
from crescendo.wire.amqp10.performatives import Transfer

Octets = npt.NDArray[np.uint8]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
TAG_BYTES = 4
_WORD = 8
_FIRST_STRIDE = 64
_STRIDE_GROWTH = 16
# Any id and tag of full width: they are found by these values and overwritten.
_PLACEHOLDER_ID = 0x7EAD_BEE1
_PLACEHOLDER_TAG = b"\x7e\xad\xbe\xe2"
_NUMBER = struct.Struct("!I")


class TransferBatch:
    """A reusable buffer of equal transfer frames on one link."""

    def __init__(
        self,
        *,
        handle: int,
        body_length: int,
        settled: bool,
        channel: int = 0,
        capacity: int = 0,
        before: bytes = b"",
    ) -> None:
        transfer = Transfer(
            handle=handle, delivery_id=_PLACEHOLDER_ID, delivery_tag=_PLACEHOLDER_TAG, message_format=0, settled=settled
        )
        frame = encode_frame(transfer, encode_message(bytes(body_length), before), channel=channel)
        self.frame_length = len(frame)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // len(frame)))
        self._octets = np.tile(np.frombuffer(frame, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, len(frame))
        # The last occurrence in the transfer: a handle that the peer chose may look like a placeholder.
        end = len(frame) - len(encode_message(bytes(body_length), before))
        id_at = frame.rindex(_PLACEHOLDER_ID.to_bytes(4, "big"), 0, end)
        tag_at = frame.rindex(_PLACEHOLDER_TAG, 0, end)
        self._ids = rows[:, id_at : id_at + 4].view(">u4")[:, 0]
        self._tags = rows[:, tag_at : tag_at + TAG_BYTES].view(">u4")[:, 0]
        self.bodies: Octets = rows[:, len(frame) - body_length :]
        self._numbers = np.arange(self.capacity, dtype=np.uint32)
        self._view = self._octets.data
        self._first_frame = self._view[: len(frame)]
        self._id_at, self._tag_at = id_at, tag_at

    def frames(self, first_id: int, count: int) -> memoryview:
        """Number the first `count` frames and return their bytes. The caller fills in the bodies."""
        if count == 1:  # arrays would cost more than everything else
            _NUMBER.pack_into(self._first_frame, self._id_at, first_id & 0xFFFF_FFFF)
            _NUMBER.pack_into(self._first_frame, self._tag_at, first_id & 0xFFFF_FFFF)
            return self._first_frame
        numbers = self._numbers[:count] + (first_id & 0xFFFF_FFFF)
        self._ids[:count] = numbers
        self._tags[:count] = numbers
        return self._view[: count * self.frame_length]


class Layout(NamedTuple):
    """Where the numbers are in a set of similar frames, and what all other bytes before the body must be."""

    length: int
    head: npt.NDArray[np.uint64]  # the bytes before the body, in words
    mask: npt.NDArray[np.uint64]  # zero over id, tag and body
    id_start: int
    id_width: int
    message_start: int
    body: Body
    transfer: Transfer

    def matches(self, rows: Octets) -> int:
        """How many leading rows match this layout.

        Compares in growing strides: comparing everything that has arrived each time would take quadratic time when
        every frame differs from the next.
        """
        words = rows[:, : self.head.size * _WORD].view(np.uint64)
        count, stride = 0, _FIRST_STRIDE
        while count < len(words):
            chunk = words[count : count + stride]
            differs = chunk ^ self.head
            differs &= self.mask
            if np.count_nonzero(differs):
                return count + int(differs.any(axis=1).argmax())
            count += len(chunk)
            stride *= _STRIDE_GROWTH
        return count

    def ids(self, rows: Octets) -> npt.NDArray[np.uint32]:
        column = rows[:, self.id_start : self.id_start + self.id_width]
        values = column.view(">u4")[:, 0] if self.id_width == 4 else column[:, 0]
        return values.astype(np.uint32)


def layout_of(octets: memoryview, frame: Frame, body: Body) -> Layout | None:
    """The layout of a decoded transfer, or None when similar frames cannot be recognised by their bytes alone."""
    transfer = frame.performative
    message_start = len(octets) - len(frame.payload)
    body_start = message_start + body.start
    if not isinstance(transfer, Transfer) or transfer.more or None in (transfer.delivery_id, transfer.delivery_tag):
        return None
    if body.length < _WORD or body_start + body.length != len(octets):
        return None  # something follows the body, or the body is too short to pad the head to whole words
    _, id_at, tag_at = field_offsets(octets, 3)
    id_width = {0x52: 1, 0x70: 4}.get(octets[id_at])
    if id_width is None or octets[tag_at] != 0xA0:
        return None
    words = -(-body_start // _WORD)
    mask = np.full(words * _WORD, 0xFF, np.uint8)
    mask[id_at + 1 : id_at + 1 + id_width] = 0
    mask[tag_at + 2 : tag_at + 2 + octets[tag_at + 1]] = 0
    mask[body_start:] = 0
    head = np.frombuffer(bytes(octets[: words * _WORD]), np.uint64)
    return Layout(
        len(octets), head, mask.view(np.uint64), id_at + 1, id_width, message_start, body, transfer
    )  # fmt: skip


def rows_of(buffer: memoryview, position: int, length: int) -> Octets:
    """The bytes from `position` on as rows of `length` bytes, without an incomplete last row."""
    count = (len(buffer) - position) // length
    return np.frombuffer(buffer, np.uint8, count * length, position).reshape(count, length)


def field_offsets(octets: memoryview, max_fields: int) -> list[int]:
    """The offsets of the first fields in a performative's list, which was decoded before and so is well formed."""
    position = skip(octets, octets[4] * 4 + 1)  # after the descriptor
    if octets[position] == 0xC0:
        count, position = octets[position + 2], position + 3
    elif octets[position] == 0xD0:
        count, position = _NUMBER.unpack_from(octets, position + 5)[0], position + 9
    else:
        count = 0  # the empty list
    offsets = []
    for _ in range(min(count, max_fields)):
        offsets.append(position)
        position = skip(octets, position)
    return offsets
