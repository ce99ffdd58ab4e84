"""How does a recorded trace of arrivals become due times?

A trace is a text file with one arrival time per line, in seconds, in ascending order; only the differences count.
Each connection replays the whole trace. Reads the file once; paces nothing by itself.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from crescendo.model.arrays import Int64s
from crescendo.model.regular_file import read_regular

NEVER_NS = 2**62
MAX_BYTES = 1 << 30


class TracePacer:
    """Due times read from a file."""

    def __init__(self, times_ns: Int64s) -> None:
        self._times_ns = times_ns
        self.messages = len(times_ns)
        self.span_ns = int(times_ns[-1])

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: Int64s) -> Int64s:
        inside = n < len(self._times_ns)
        return np.where(inside, self._times_ns[np.where(inside, n, 0)], NEVER_NS)

    def due_count(self, elapsed_ns: int) -> int:
        return int(np.searchsorted(self._times_ns, elapsed_ns, side="right"))


@lru_cache(maxsize=8)  # thousands of connections share one trace
def trace_of(file: str, speed: float) -> TracePacer:
    """The pacer of a trace replayed at `speed` times its own rate. A ValueError names the file and the bad line."""
    try:
        lines = read_regular(Path(file), MAX_BYTES).decode("ascii").splitlines()
    except OSError as err:
        raise ValueError(f"file: {file} cannot be read: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise ValueError(f"file: {file} is not a text file of arrival times") from err
    times_s = np.fromiter(
        (_seconds(file, number, line) for number, line in enumerate(lines, 1)), np.float64, len(lines)
    )
    if not len(times_s):
        raise ValueError(f"file: {file} holds no arrival times")
    backwards = np.flatnonzero(np.diff(times_s) < 0)
    if len(backwards):
        raise ValueError(f"file: {file}, line {backwards[0] + 2}: earlier than the line before it; sort the trace")
    return TracePacer(np.round((times_s - times_s[0]) * (1e9 / speed)).astype(np.int64))


def _seconds(file: str, number: int, line: str) -> float:
    try:
        seconds = float(line)
    except ValueError:
        seconds = np.nan
    if not np.isfinite(seconds):
        raise ValueError(f"file: {file}, line {number}: {line[:40]!r} is not a time in seconds")
    return seconds
