"""How do many messages to one MLMQ queue become one block of bytes?

Requests of one connection to one queue share all bytes but request number, flags and content. One frame is tiled, ids
are written in their widest form so that all frames have the same length, and one assignment patches the numbers of a
whole batch. The scalar codec decides what a frame means and is the oracle of the tests.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from crescendo.wire.mlmq.codec import VERSION

Octets = npt.NDArray[np.uint8]

BATCH_BYTES: Final = 64 * 1024
MAX_BATCH: Final = 256
_SEND = 7  # the type number of the request
_ARRAY_OF_4, _ARRAY_OF_1, _UINT64, _BIN16 = 0x94, 0x91, 0xCF, 0xC5
_HEAD = np.dtype(
    [
        ("length", ">i4"), ("version", "u1"), ("flags", "u1"), ("type", ">u2"), ("request", ">u8"),
        ("array", "u1"), ("client_mark", "u1"), ("client", ">u8"), ("content_mark", "u1"), ("content_length", ">u2"),
    ]
)  # fmt: skip
_TAIL = np.dtype([("array", "u1"), ("queue_mark", "u1"), ("queue", ">u8"), ("priority", "u1")])
_LENGTH_BYTES = 4


class SendBatch:
    """A reusable buffer of equal messages to one queue."""

    def __init__(self, *, body_length: int, priority: int, capacity: int = 0) -> None:
        """Content of 0 to 65,535 bytes, priority 1 to 10. Call `address` before sending any."""
        self.frame_length = _HEAD.itemsize + body_length + _TAIL.itemsize
        self.capacity = capacity or max(1, min(MAX_BATCH, BATCH_BYTES // self.frame_length))
        self._octets = np.zeros(self.capacity * self.frame_length, np.uint8)
        rows = self._octets.reshape(self.capacity, self.frame_length)
        self.bodies: Octets = rows[:, _HEAD.itemsize : _HEAD.itemsize + body_length]
        self._heads = rows[:, : _HEAD.itemsize].view(_HEAD)[:, 0]
        self._tails = rows[:, _HEAD.itemsize + body_length :].view(_TAIL)[:, 0]
        self._numbers = np.arange(self.capacity, dtype=np.uint64)
        heads, tails = self._heads, self._tails
        heads["length"], heads["version"], heads["type"] = self.frame_length - _LENGTH_BYTES, VERSION, _SEND
        heads["array"], heads["client_mark"] = _ARRAY_OF_4, _UINT64
        heads["content_mark"], heads["content_length"] = _BIN16, body_length
        tails["array"], tails["queue_mark"], tails["priority"] = _ARRAY_OF_1, _UINT64, priority

    def address(self, client: int, queue: int) -> None:
        """Set the sending client and the queue."""
        self._heads["client"], self._tails["queue"] = client, queue

    def frames(self, first_number: int, count: int, timed_every: int) -> memoryview:
        """Number the first `count` requests and return their bytes; the caller fills in the bodies.

        Requests whose number is a multiple of `timed_every` ask for their times.
        """
        numbers = self._numbers[:count] + np.uint64(first_number)
        self._heads["request"][:count] = numbers
        self._heads["flags"][:count] = numbers % np.uint64(timed_every) == 0
        return self._octets.data[: count * self.frame_length]
