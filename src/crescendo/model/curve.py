"""When should message n leave, when the rate changes over time?

A curve is a chain of pieces with a rate that is constant or changes linearly, once through or again and again. The
number of messages due by time t is the area under it, and each piece can be solved for t exactly; so the due time of
any message follows from its number alone, without a walk through those before it.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEVER_NS = 2**62
"""When the rate has fallen to zero for good."""


@dataclass(frozen=True)
class Piece:
    """A stretch of time with a rate in messages a second that goes linearly from `start` to `end`."""

    length_ns: int
    start: float
    end: float

    @property
    def messages(self) -> float:
        return (self.start + self.end) / 2 * self.length_ns / 1e9


class Curve:
    """A pacer whose rate follows pieces; after the last one it stays at that one's end, or starts over."""

    def __init__(self, pieces: Sequence[Piece], *, repeats: bool = False, phase: float = 0.0) -> None:
        self._phase = phase  # how far into its interval the first message leaves
        if not repeats:
            pieces = [*pieces, Piece(NEVER_NS, pieces[-1].end, pieces[-1].end)]
        self._begins_ns = [0.0]
        self._counts = [0.0]
        for piece in pieces:
            self._begins_ns.append(self._begins_ns[-1] + piece.length_ns)
            self._counts.append(self._counts[-1] + piece.messages)
        self._starts = np.array([piece.start for piece in pieces])
        # Half the change of the rate, per second: N(t) = start × t + bend × t².
        self._bends = np.array([(piece.end - piece.start) / 2 / (piece.length_ns / 1e9) for piece in pieces])
        self._period_ns = self._begins_ns[-1] if repeats else math.inf
        self._in_a_period = self._counts[-1]
        if not self._in_a_period:
            raise ValueError("a profile in which nothing is ever sent")
        self._begins, self._steps = np.array(self._begins_ns), np.array(self._counts)

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: Int64s) -> Int64s:
        rest = n + self._phase
        base_ns: Floats | float = 0.0
        if self._period_ns != math.inf:
            rounds = np.floor(rest / self._in_a_period)
            rest = np.maximum(rest - rounds * self._in_a_period, 0.0)
            base_ns = rounds * self._period_ns
        # The piece in which the count passes n; a piece without messages is passed over.
        piece = np.minimum(np.searchsorted(self._steps, rest, side="right") - 1, len(self._starts) - 1)
        rest = rest - self._steps[piece]
        start, bend = self._starts[piece], self._bends[piece]
        root = start + np.sqrt(np.maximum(start * start + 4 * bend * rest, 0.0))
        seconds = np.divide(2 * rest, root, out=np.zeros_like(rest), where=root > 0)
        due_ns = base_ns + self._begins[piece] + seconds * 1e9
        due: Int64s = np.round(np.where((start > 0) | (bend > 0), due_ns, NEVER_NS)).astype(np.int64)
        return due

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        # The area can be off by one where due_ns rounds, so due_ns has the last word.
        count = max(int(self._area(elapsed_ns) - self._phase), 0)
        while self._due(count) <= elapsed_ns:
            count += 1
        while count and self._due(count - 1) > elapsed_ns:
            count -= 1
        return count

    def _area(self, elapsed_ns: float) -> float:
        rounds = 0.0
        if self._period_ns != math.inf:
            rounds, elapsed_ns = divmod(elapsed_ns, self._period_ns)
        piece = min(bisect_right(self._begins_ns, elapsed_ns) - 1, len(self._starts) - 1)
        seconds = (elapsed_ns - self._begins_ns[piece]) / 1e9
        area = self._counts[piece] + float(self._starts[piece]) * seconds + float(self._bends[piece]) * seconds**2
        return rounds * self._in_a_period + area

    def _due(self, n: int) -> int:
        return int(self.due_ns(np.array([n], np.int64))[0])
