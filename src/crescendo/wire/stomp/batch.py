"""How do thousands of STOMP messages become a handful of array operations?

Messages of a fixed size share all bytes but a few digits and the body. `SendBatch` tiles one frame into a buffer and
patches receipt ids and bodies column by column. `Layout` does the reverse: frames of equal length whose bytes equal the
first one's, apart from the digits of ids and times and the body, are rows of one strided view. Only the scalar codec
decides what a frame means; this module only recognises repetitions.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.stomp import client_frames
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
_GROUP = 4  # digits per table lookup
_MAX_NUMBER_DIGITS = 18  # fits a signed 64-bit integer
_MAX_GAP = 2
_LINE_ENDS = (0x0A, 0x0D)
_DIGITS = re.compile(rb"[0-9]+")
_FIXED = {b"", b"content-length", b"subscription"}
"""Lines in which not even digits may differ within a run: they determine the framing and the subscription."""


class SendBatch:
    """A reusable buffer of equal SEND frames."""

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
        headers = client_frames.send(
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
        self._receipt_at = receipt_at = body_start - 2 - RECEIPT_DIGITS  # the last header
        self._receipts = rows[:, receipt_at : receipt_at + RECEIPT_DIGITS].view(np.uint32) if receipts else None
        self._numbers = np.arange(self.capacity, dtype=np.int64)

    def frames(self, first_number: int, count: int) -> memoryview:
        """Number the first `count` frames and return their bytes; the caller fills in the bodies."""
        if count == 1 and self._receipts is not None:  # for one frame, array operations would dominate the cost
            self._view[self._receipt_at : self._receipt_at + RECEIPT_DIGITS] = receipt_id(first_number).encode()
        elif self._receipts is not None:
            rest = self._numbers[:count] + first_number
            for column in range(RECEIPT_DIGITS // _GROUP - 1, -1, -1):
                rest, group = np.divmod(rest, 10**_GROUP)
                self._receipts[:count, column] = _digit_groups()[group]
        return self._view[: count * self.frame_length]


def receipt_id(number: int) -> str:
    """The receipt id of message `number`, in the form that a batch writes."""
    return f"{number:0{RECEIPT_DIGITS}d}"


@cache
def _digit_groups() -> npt.NDArray[np.uint32]:
    """0000 to 9999 in ASCII, four bytes per entry."""
    numbers = np.arange(10**_GROUP)
    columns = [numbers // 10**power % 10 + ord("0") for power in range(_GROUP - 1, -1, -1)]
    return np.stack(columns, axis=1).astype(np.uint8).view(np.uint32)[:, 0]


class Layout(NamedTuple):
    """Where the frames of a run may differ in digits, and what all other bytes before the body must be."""

    length: int  # of a frame, including its NUL
    body_start: int
    head: Words  # the bytes before the body, in words
    mask: Words  # all bits of constant bytes, the upper half of digits, no bit of the body
    digit_carry: Words  # 6 at each digit: a byte is a digit only if adding 6 leaves its upper half unchanged
    digit_nibbles: Words  # 0xF0 at each digit
    id_start: int  # the value of the header that identifies the message or the receipt
    id_end: int
    headers: dict[str, str]
    command: str

    def matches(self, buffer: bytearray, start: int, end: int) -> tuple[int, int]:
        """How many frames from here on match this layout, and how many bytes lie between their starts.

        Compares in growing strides: if every frame differed from the next, comparing all buffered frames for each of
        them would take quadratic time.
        """
        gap = 0  # the number of line ends after the first frame, expected between all frames
        while gap < _MAX_GAP and start + self.length + gap < end and buffer[start + self.length + gap] in _LINE_ENDS:
            gap += 1
        spacing = self.length + gap
        whole = (end - start + gap) // spacing
        count, stride = 0, _FIRST_STRIDE
        while count < whole:
            some = min(stride, whole - count)
            same = self._matching(buffer, start + count * spacing, some, spacing)
            count += same
            if same < some:
                break
            stride *= _STRIDE_GROWTH
        return self._evenly_spaced(buffer, start, count, spacing), spacing

    def _matching(self, buffer: bytearray, start: int, count: int, spacing: int) -> int:
        words: Words = np.ndarray((count, len(self.head)), np.uint64, buffer, start, (spacing, WORD))
        differs = ((words ^ self.head) & self.mask).any(axis=1)
        differs |= ((words + self.digit_carry ^ self.head) & self.digit_nibbles).any(axis=1)
        differs |= np.ndarray((count,), np.uint8, buffer, start + self.length - 1, (spacing,)) != 0
        return int(differs.argmax()) if differs.any() else count

    def _evenly_spaced(self, buffer: bytearray, start: int, count: int, spacing: int) -> int:
        """How many frames have the same line ends between them as the first two; after the last they may be missing."""
        gap = spacing - self.length
        if gap == 0 or count < 2:
            return count
        gaps: Octets = np.ndarray((count - 1, gap), np.uint8, buffer, start + self.length, (spacing, 1))
        odd = (gaps != gaps[0]).any(axis=1)
        return int(odd.argmax()) + 1 if odd.any() else count

    def bodies(self, buffer: bytearray, start: int, count: int, spacing: int) -> Octets:
        width = self.length - 1 - self.body_start
        return np.ndarray((count, width), np.uint8, buffer, start + self.body_start, (spacing, 1))

    def ids(self, buffer: bytearray, start: int, count: int, spacing: int) -> Octets:
        return np.ndarray((count, self.id_end - self.id_start), np.uint8, buffer, start + self.id_start, (spacing, 1))


def layout_of(buffer: bytearray, located: LocatedFrame, id_header: bytes) -> Layout | None:
    """The layout of a decoded frame, or None if its repetitions cannot be recognised from their bytes alone."""
    frame, start = located.frame, located.start
    body_start, length = located.body_start - start, located.end - start
    if len(frame.body) and CONTENT_LENGTH not in frame.headers:
        return None  # its end is found by searching for a NUL, not by its length
    size = -(-body_start // WORD) * WORD
    head = np.zeros(size, np.uint8)
    head[:body_start] = np.frombuffer(buffer, np.uint8, body_start, start)
    mask = np.zeros(size, np.uint8)
    mask[:body_start] = 0xFF
    digits = np.zeros(size, bool)
    id_start = id_end = 0
    position = 0
    for line in bytes(buffer[start : located.body_start]).split(b"\n"):
        name, colon, value = line.partition(b":")
        value_at = position + len(name) + 1
        if colon and name not in _FIXED:
            for found in _DIGITS.finditer(value):
                digits[value_at + found.start() : value_at + found.end()] = True
        if name == id_header and not id_end:
            id_start, id_end = value_at, value_at + len(value.removesuffix(b"\r"))
        position += len(line) + 1
    mask[digits] = 0xF0
    digit_carry = np.where(digits, np.uint8(6), np.uint8(0))
    digit_nibbles = np.where(digits, np.uint8(0xF0), np.uint8(0))
    return Layout(
        length,
        body_start,
        head.view(np.uint64),
        mask.view(np.uint64),
        digit_carry.view(np.uint64),
        digit_nibbles.view(np.uint64),
        id_start,
        id_end,
        frame.headers,
        frame.command,
    )


def numbers_of(ids: Octets) -> npt.NDArray[np.int64] | None:
    """The numbers that these texts represent, or None if any is not a number."""
    width = ids.shape[1]
    digits = ids - np.uint8(ord("0"))
    if not 0 < width <= _MAX_NUMBER_DIGITS or (digits > 9).any():
        return None
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    numbers: npt.NDArray[np.int64] = digits.astype(np.int64) @ powers
    return numbers
