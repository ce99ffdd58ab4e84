"""When did a sampled message arrive at a router, and when did it leave?

One message in a hundred, chosen by its sequence number, so that every router of a network samples the same ones. Rows
of a fixed size are kept in memory and written to a file a few times per second. A file has a limit; what is beyond it
is not sampled. Reads stamps only, and changes no message.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from crescendo.model.workload import STAMP_BYTES
from crescendo.record.schema import HOP_SAMPLED_EVERY
from crescendo.wire.stamp import MAGIC, stamps_of

HOP = np.dtype([("tag", "<u4"), ("sender", "<u4"), ("seq", "<i8"), ("arrived_ns", "<i8"), ("departed_ns", "<i8")])
WRITTEN_EVERY_S = 0.1
MAX_ROWS = 2_000_000
"""Of one file: 200 million messages, in 64 MB."""


class HopSamples:
    """The samples of one router."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")  # a router that was restarted goes on
        self._rows: list[npt.NDArray[np.void]] = []
        self._left = max(MAX_ROWS - self._file.tell() // HOP.itemsize, 0)

    def add(self, bodies: npt.NDArray[np.uint8], arrived_ns: int, departed_ns: int) -> None:
        """These messages arrived together, and leave together."""
        if bodies.shape[1] < STAMP_BYTES or not self._left:
            return
        stamps = stamps_of(bodies)
        sampled = stamps[(stamps["magic"] == MAGIC) & (stamps["seq"] % HOP_SAMPLED_EVERY == 0)][: self._left]
        if not len(sampled):
            return
        rows = np.zeros(len(sampled), HOP)
        for name in ("tag", "sender", "seq"):
            rows[name] = sampled[name]
        rows["arrived_ns"], rows["departed_ns"] = arrived_ns, departed_ns
        self._rows.append(rows)
        self._left -= len(rows)

    def write(self) -> None:
        if self._rows:
            self._file.write(np.concatenate(self._rows).tobytes())
            self._file.flush()
            self._rows.clear()

    def close(self) -> None:
        self.write()
        self._file.close()


def read_hops(path: Path) -> npt.NDArray[np.void]:
    """The whole rows of a file; a router that was killed may have left half of one."""
    content = path.read_bytes()[: MAX_ROWS * HOP.itemsize]
    return np.frombuffer(content[: len(content) // HOP.itemsize * HOP.itemsize], HOP)
