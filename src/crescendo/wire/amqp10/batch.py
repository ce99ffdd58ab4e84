"""How do thousands of transfers become a handful of array operations?

A transfer of fixed size is the same bytes with a few numbers patched in. `TransferBatch` tiles one frame into a
buffer and patches delivery ids, tags and bodies column by column. `Layout` does the reverse: frames of equal length
whose bytes equal the first one's, apart from id, tag and body, are rows of one strided view. Only the scalar codec
decides what a frame means; this module only recognises more of the same.
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
# Any id and tag of full width will do: both are found by these values and overwritten.
_MARK_ID = 0x7EAD_BEE1
_MARK_TAG = b"\x7e\xad\xbe\xe2"
_NUMBER = struct.Struct("!I")


class TransferBatch:
    """A buffer of equal transfer frames on one link, filled and sent again and again."""

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
            handle=handle, delivery_id=_MARK_ID, delivery_tag=_MARK_TAG, message_format=0, settled=settled
        )
        frame = encode_frame(transfer, encode_message(bytes(body_length), before), channel=channel)
        self.frame_length = len(frame)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // len(frame)))
        self._octets = np.tile(np.frombuffer(frame, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, len(frame))
        # The last occurrence in the transfer: a peer may have chosen a handle that looks like a mark.
        end = len(frame) - len(encode_message(bytes(body_length), before))
        id_at = frame.rindex(_MARK_ID.to_bytes(4, "big"), 0, end)
        tag_at = frame.rindex(_MARK_TAG, 0, end)
        self._ids = rows[:, id_at : id_at + 4].view(">u4")[:, 0]
        self._tags = rows[:, tag_at : tag_at + TAG_BYTES].view(">u4")[:, 0]
        self.bodies: Octets = rows[:, len(frame) - body_length :]
        self._numbers = np.arange(self.capacity, dtype=np.uint32)
        self._view = self._octets.data
        self._first_frame = self._view[: len(frame)]
        self._id_at, self._tag_at = id_at, tag_at

    def frames(self, first_id: int, count: int) -> memoryview:
        """Number the first `count` frames and return their bytes; the bodies are the caller's business."""
        if count == 1:  # arrays would cost more than all the rest
            _NUMBER.pack_into(self._first_frame, self._id_at, first_id & 0xFFFF_FFFF)
            _NUMBER.pack_into(self._first_frame, self._tag_at, first_id & 0xFFFF_FFFF)
            return self._first_frame
        numbers = self._numbers[:count] + (first_id & 0xFFFF_FFFF)
        self._ids[:count] = numbers
        self._tags[:count] = numbers
        return self._view[: count * self.frame_length]


class Layout(NamedTuple):
    """Where the numbers stand in frames that look alike, and what all other bytes before the body must be."""

    length: int
    head: npt.NDArray[np.uint64]  # the bytes before the body, in words
    mask: npt.NDArray[np.uint64]  # zero where id, tag and body stand
    id_start: int
    id_width: int
    message_start: int
    body: Body
    transfer: Transfer

    def matches(self, rows: Octets) -> int:
        """How many rows from the first look like this layout.

        In growing strides: where every frame differs from the next, looking at all that has arrived for each of them
        would take quadratic time.
        """
        words = rows[:, : self.head.size * _WORD].view(np.uint64)
        count, stride = 0, _FIRST_STRIDE
        while count < len(words):
            some = words[count : count + stride]
            differs = some ^ self.head
            differs &= self.mask
            if np.count_nonzero(differs):
                return count + int(differs.any(axis=1).argmax())
            count += len(some)
            stride *= _STRIDE_GROWTH
        return count

    def ids(self, rows: Octets) -> npt.NDArray[np.uint32]:
        column = rows[:, self.id_start : self.id_start + self.id_width]
        values = column.view(">u4")[:, 0] if self.id_width == 4 else column[:, 0]
        return values.astype(np.uint32)


def layout_of(octets: memoryview, frame: Frame, body: Body) -> Layout | None:
    """The layout of a decoded transfer, or None when frames like it cannot be told from their bytes alone."""
    transfer = frame.performative
    message_start = len(octets) - len(frame.payload)
    body_start = message_start + body.start
    if not isinstance(transfer, Transfer) or transfer.more or None in (transfer.delivery_id, transfer.delivery_tag):
        return None
    if body.length < _WORD or body_start + body.length != len(octets):
        return None  # something follows the body, or the body is too short to pad the head to whole words
    _, id_at, tag_at = fields_of(octets, 3)
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
    """All whole stretches of `length` bytes from here on, one a row."""
    count = (len(buffer) - position) // length
    return np.frombuffer(buffer, np.uint8, count * length, position).reshape(count, length)


def fields_of(octets: memoryview, most: int) -> list[int]:
    """Where the first fields of a performative's list begin. The list was decoded before, so it is well formed."""
    position = skip(octets, octets[4] * 4 + 1)  # behind the descriptor
    if octets[position] == 0xC0:
        count, position = octets[position + 2], position + 3
    elif octets[position] == 0xD0:
        count, position = _NUMBER.unpack_from(octets, position + 5)[0], position + 9
    else:
        count = 0  # a list of nothing
    places = []
    for _ in range(min(count, most)):
        places.append(position)
        position = skip(octets, position)
    return places
