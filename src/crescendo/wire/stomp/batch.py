"""How do thousands of STOMP messages become a handful of array operations?

A message of fixed size is the same bytes with a few digits patched in. `SendBatch` tiles one frame into a buffer and
patches receipt ids and bodies column by column. `Layout` does the reverse: frames of equal length whose bytes equal the
first one's, apart from digits of ids and times and from the body, are rows of one strided view. Only the scalar codec
decides what a frame means; this module only recognises more of the same.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.stomp import commands
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.frames import CONTENT_LENGTH, LocatedFrame, encode_frame

Octets = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

BATCH_BYTES = 256 * 1024
MAX_BATCH = 4096
RECEIPT_DIGITS = 16
WORD = 8
_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16
_GROUP = 4  # digits that are looked up at once
_MAX_NUMBER_DIGITS = 18  # fit a signed word
_MAX_GAP = 2
_LINE_ENDS = (0x0A, 0x0D)
_DIGITS = re.compile(rb"[0-9]+")
_FIXED = {b"", b"content-length", b"subscription"}
"""Lines in which not even digits may differ within a run, because they decide how a frame is read and whose it is."""


class SendBatch:
    """A buffer of equal SEND frames, filled and sent again and again."""

    def __init__(
        self,
        destination: str,
        *,
        body_length: int,
        receipts: bool,
        version: Version,
        persistent: bool = False,
        priority: int | None = None,
        transaction: str | None = None,
        more: Mapping[str, str] | None = None,
        capacity: int = 0,
    ) -> None:
        headers = commands.send(
            destination,
            persistent=persistent,
            priority=priority,
            transaction=transaction,
            receipt="0" * RECEIPT_DIGITS if receipts else None,
            more=more,
        )
        frame = encode_frame("SEND", headers, bytes(body_length), version=version, sized=True)
        self.frame_length = len(frame)
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // len(frame)))
        self._octets = np.tile(np.frombuffer(frame, np.uint8), self.capacity)
        rows = self._octets.reshape(self.capacity, len(frame))
        body_start = len(frame) - 1 - body_length
        self.bodies: Octets = rows[:, body_start : body_start + body_length]
        self._view = self._octets.data
        self._receipt_at = receipt_at = body_start - 2 - RECEIPT_DIGITS  # it is the last header
        self._receipts = rows[:, receipt_at : receipt_at + RECEIPT_DIGITS].view(np.uint32) if receipts else None
        self._numbers = np.arange(self.capacity, dtype=np.int64)

    def frames(self, first_number: int, count: int) -> memoryview:
        """Number the first `count` frames and return their bytes; the bodies are the caller's business."""
        if count == 1 and self._receipts is not None:  # arrays would cost more than all the rest
            self._view[self._receipt_at : self._receipt_at + RECEIPT_DIGITS] = receipt_id(first_number).encode()
        elif self._receipts is not None:
            rest = self._numbers[:count] + first_number
            for column in range(RECEIPT_DIGITS // _GROUP - 1, -1, -1):
                rest, group = np.divmod(rest, 10**_GROUP)
                self._receipts[:count, column] = _digit_groups()[group]
        return self._view[: count * self.frame_length]


def receipt_id(number: int) -> str:
    """The receipt id of message `number`, as a batch writes it."""
    return f"{number:0{RECEIPT_DIGITS}d}"


@cache
def _digit_groups() -> npt.NDArray[np.uint32]:
    """0000 to 9999 in ASCII, four bytes an entry."""
    numbers = np.arange(10**_GROUP)
    columns = [numbers // 10**power % 10 + ord("0") for power in range(_GROUP - 1, -1, -1)]
    return np.stack(columns, axis=1).astype(np.uint8).view(np.uint32)[:, 0]


class Layout(NamedTuple):
    """Where digits may differ in frames that look alike, and what all other bytes before the body must be."""

    length: int  # of a frame with its NUL
    body_start: int
    head: Words  # the bytes before the body, in words
    mask: Words  # all bits of the constant bytes, the upper half of digits, nothing of the body
    six: Words  # added to digits, this leaves their upper half as it was: only so they are digits
    halves: Words  # the upper halves of digits
    id_start: int  # the header that names the message or the receipt
    id_end: int
    headers: dict[str, str]
    command: str

    def matches(self, buffer: bytearray, start: int, end: int) -> tuple[int, int]:
        """How many frames from here on look like this layout, and how far apart they stand.

        In growing strides: where every frame differs from the next, looking at all that has arrived for each of them
        would take quadratic time.
        """
        gap = 0  # line ends between the frames, as many as follow the first
        while gap < _MAX_GAP and start + self.length + gap < end and buffer[start + self.length + gap] in _LINE_ENDS:
            gap += 1
        apart = self.length + gap
        whole = (end - start + gap) // apart
        count, stride = 0, _FIRST_STRIDE
        while count < whole:
            some = min(stride, whole - count)
            same = self._matching(buffer, start + count * apart, some, apart)
            count += same
            if same < some:
                break
            stride *= _STRIDE_GROWTH
        return self._evenly_spaced(buffer, start, count, apart), apart

    def _matching(self, buffer: bytearray, start: int, count: int, apart: int) -> int:
        words: Words = np.ndarray((count, len(self.head)), np.uint64, buffer, start, (apart, WORD))
        differs = ((words ^ self.head) & self.mask).any(axis=1)
        differs |= ((words + self.six ^ self.head) & self.halves).any(axis=1)
        differs |= np.ndarray((count,), np.uint8, buffer, start + self.length - 1, (apart,)) != 0
        return int(differs.argmax()) if differs.any() else count

    def _evenly_spaced(self, buffer: bytearray, start: int, count: int, apart: int) -> int:
        """Only as many as have the first one's line ends between them; behind the last one they may be missing."""
        gap = apart - self.length
        if gap == 0 or count < 2:
            return count
        gaps: Octets = np.ndarray((count - 1, gap), np.uint8, buffer, start + self.length, (apart, 1))
        odd = (gaps != gaps[0]).any(axis=1)
        return int(odd.argmax()) + 1 if odd.any() else count

    def bodies(self, buffer: bytearray, start: int, count: int, apart: int) -> Octets:
        width = self.length - 1 - self.body_start
        return np.ndarray((count, width), np.uint8, buffer, start + self.body_start, (apart, 1))

    def ids(self, buffer: bytearray, start: int, count: int, apart: int) -> Octets:
        return np.ndarray((count, self.id_end - self.id_start), np.uint8, buffer, start + self.id_start, (apart, 1))


def layout_of(buffer: bytearray, placed: LocatedFrame, id_header: bytes) -> Layout | None:
    """The layout of a decoded frame, or None when frames like it cannot be told from their bytes alone."""
    frame, start = placed.frame, placed.start
    body_start, length = placed.body_start - start, placed.end - start
    if len(frame.body) and CONTENT_LENGTH not in frame.headers:
        return None  # its end is found by looking for a NUL, not by counting
    size = -(-body_start // WORD) * WORD
    head = np.zeros(size, np.uint8)
    head[:body_start] = np.frombuffer(buffer, np.uint8, body_start, start)
    mask = np.zeros(size, np.uint8)
    mask[:body_start] = 0xFF
    digits = np.zeros(size, bool)
    id_start = id_end = 0
    position = 0
    for line in bytes(buffer[start : placed.body_start]).split(b"\n"):
        name, colon, value = line.partition(b":")
        value_at = position + len(name) + 1
        if colon and name not in _FIXED:
            for found in _DIGITS.finditer(value):
                digits[value_at + found.start() : value_at + found.end()] = True
        if name == id_header and not id_end:
            id_start, id_end = value_at, value_at + len(value.removesuffix(b"\r"))
        position += len(line) + 1
    mask[digits] = 0xF0
    six = np.where(digits, np.uint8(6), np.uint8(0))
    halves = np.where(digits, np.uint8(0xF0), np.uint8(0))
    return Layout(
        length,
        body_start,
        head.view(np.uint64),
        mask.view(np.uint64),
        six.view(np.uint64),
        halves.view(np.uint64),
        id_start,
        id_end,
        frame.headers,
        frame.command,
    )


def numbers_of(ids: Octets) -> npt.NDArray[np.int64] | None:
    """The numbers that these texts are, or None when they are something else."""
    width = ids.shape[1]
    figures = ids - np.uint8(ord("0"))
    if not 0 < width <= _MAX_NUMBER_DIGITS or (figures > 9).any():
        return None
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    numbers: npt.NDArray[np.int64] = figures.astype(np.int64) @ powers
    return numbers
