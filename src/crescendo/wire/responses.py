"""Which responses to our messages have arrived?

For protocols in which every message may ask for a response: OpenWire and Core. A plain response is a constant frame
around the number of a message, so a run of them is one array. Numbers with the highest bit are those of other commands,
and are left to the connection, like every other frame.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crescendo.wire.receive_buffer import ReceiveBuffer

_FIRST_STRIDE = 16
_STRIDE_GROWTH = 16
_HIGHEST_POSITIVE = 0x7F


class Responses(NamedTuple):
    """The broker has processed our messages with these numbers, in this order."""

    numbers: npt.NDArray[np.int64]
    batched: bool


class Rejected(NamedTuple):
    """The broker refused our message with this number."""

    number: int
    reason: str


class ResponseRuns:
    """Takes runs of responses. A run begins with the same bytes in every frame, and ends with the number."""

    def __init__(self, response: bytes, *, same_bytes: int, number_at: int) -> None:
        self._length = len(response)
        self._begin = response[:same_bytes]
        self._same = np.frombuffer(self._begin, np.uint8)
        self._number_at = number_at
        self._number_type = f">u{len(response) - number_at}"

    def take(self, buffer: ReceiveBuffer) -> Responses | None:
        """The responses at the start of the buffer; None if there are none."""
        view, start, length = buffer.view, buffer.start, self._length
        whole = (buffer.end - start) // length
        if not whole or bytes(view[start : start + len(self._begin)]) != self._begin:
            return None
        rows = np.ndarray((whole, length), np.uint8, view, start)
        count, stride = 0, _FIRST_STRIDE
        while count < whole:
            some = rows[count : count + stride]
            differs = (some[:, : len(self._begin)] != self._same).any(axis=1)
            differs |= some[:, self._number_at] > _HIGHEST_POSITIVE
            if differs.any():
                count += int(differs.argmax())
                break
            count += len(some)
            stride *= _STRIDE_GROWTH
        if not count:
            return None
        buffer.start += count * length
        return Responses(rows[:count, self._number_at :].view(self._number_type)[:, 0].astype(np.int64), True)
