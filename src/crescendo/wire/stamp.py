"""What do the first 32 bytes of every payload say?

The sender, the run, the sequence number, the intended send time and the actual send time. Big-endian and of fixed
width, so that a batch of payloads is one structured array. Describes the layout only; filling in values is up to the
caller.
"""

import struct
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from crescendo.model.workload import STAMP_BYTES

MAGIC = 0xC501
"""0xC5 marks a Crescendo payload, 0x01 is the version of the stamp."""

STAMP = np.dtype(
    [
        ("magic", ">u2"),
        ("sender", ">u2"),
        ("tag", ">u4"),
        ("seq", ">u8"),
        ("intended_ns", ">i8"),
        ("sent_ns", ">i8"),
    ]
)

ONE_STAMP = struct.Struct(">HHIQqq")
"""The same layout for a single payload, where setting up arrays would cost more than reading the numbers."""

STAMP_NUMBERS = struct.Struct(">Qqq")
STAMP_NUMBERS_AT = 8
"""The fields that change from message to message on a connection: sequence number, intended time, send time."""

Stamps = npt.NDArray[np.void]
Words = TypeVar("Words", int, npt.NDArray[np.int64])


def stamp_words(payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The stamps of a batch as a view of four 64-bit columns: head (magic, sender, tag), sequence number, both times.

    Big-endian; copy them to native byte order before computing with them.
    """
    words: npt.NDArray[np.int64] = payloads[:, :STAMP_BYTES].view(">i8")
    return words


def heads_of(words: Words) -> tuple[Words, Words, Words]:
    """Magic, sender and tag, from the head of one stamp or of many."""
    return words >> 48 & 0xFFFF, words >> 32 & 0xFFFF, words & 0xFFFF_FFFF


def stamps_of(payloads: npt.NDArray[np.uint8]) -> Stamps:
    """The stamps of a batch, as a view. `payloads` has shape (messages, bytes), with at least 32 bytes per message."""
    stamps: Stamps = payloads[:, :STAMP_BYTES].view(STAMP)[:, 0]
    return stamps
