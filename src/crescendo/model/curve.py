"""When is message n due, if the rate changes over time?

A curve is a chain of segments, each with a constant or linearly changing rate, played once or repeatedly. The number
of messages due by time t is the area under the curve, and each segment can be solved for t exactly. So the due time of
any message follows from its number alone, without iterating over the messages before it.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crescendo.model.arrays import Floats, Int64s
from crescendo.model.pacer import MAX_RATE

NEVER_NS = 2**62
"""The due time of messages after the rate has dropped to zero for good."""

MAX_LENGTH_NS = 2**61
"""73 years. Beyond this, due times would no longer fit their integers."""


@dataclass(frozen=True)
class CurveSegment:
    """A span of time in which the rate, in messages per second, changes linearly from `start` to `end`."""

    length_ns: int
    start: float
    end: float

    @property
    def messages(self) -> float:
        return (self.start + self.end) / 2 * self.length_ns / 1e9


class Curve:
    """A pacer whose rate follows segments; after the last one it holds that segment's end rate, or starts over."""

    def __init__(self, segments: Sequence[CurveSegment], *, repeats: bool = False, phase: float = 0.0) -> None:
        self._phase = phase  # how far into its interval the first message is due
        if sum(segment.length_ns for segment in segments) > MAX_LENGTH_NS:
            raise ValueError("the profile is longer than 73 years")
        if max(max(segment.start, segment.end) for segment in segments) > MAX_RATE:
            raise ValueError(f"the profile raises the rate above {MAX_RATE:g} per second")
        if not repeats:
            segments = [*segments, CurveSegment(NEVER_NS, segments[-1].end, segments[-1].end)]
        self._begins_ns = [0.0]
        self._counts = [0.0]
        for segment in segments:
            self._begins_ns.append(self._begins_ns[-1] + segment.length_ns)
            self._counts.append(self._counts[-1] + segment.messages)
        self._starts = np.array([segment.start for segment in segments])
        # Half the slope of the rate: N(t) = start × t + bend × t².
        self._bends = np.array([(segment.end - segment.start) / 2 / (segment.length_ns / 1e9) for segment in segments])
        self._period_ns = self._begins_ns[-1] if repeats else math.inf
        self._period_messages = self._counts[-1]
        if not self._period_messages:
            raise ValueError("the profile never sends anything")
        self._begins, self._steps = np.array(self._begins_ns), np.array(self._counts)

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: Int64s) -> Int64s:
        rest = n + self._phase
        base_ns: Floats | float = 0.0
        if self._period_ns != math.inf:
            rounds = np.floor(rest / self._period_messages)
            rest = np.maximum(rest - rounds * self._period_messages, 0.0)
            base_ns = rounds * self._period_ns
        # The segment in which the count passes n; a segment without messages is skipped.
        segment = np.minimum(np.searchsorted(self._steps, rest, side="right") - 1, len(self._starts) - 1)
        rest = rest - self._steps[segment]
        start, bend = self._starts[segment], self._bends[segment]
        root = start + np.sqrt(np.maximum(start * start + 4 * bend * rest, 0.0))
        seconds = np.divide(2 * rest, root, out=np.zeros_like(rest), where=root > 0)
        due_ns = base_ns + self._begins[segment] + seconds * 1e9
        due: Int64s = np.round(np.where((start > 0) | (bend > 0), due_ns, NEVER_NS)).astype(np.int64)
        return due

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        # The area can be off by one where due_ns rounds, so due_ns decides.
        count = max(int(self._area(elapsed_ns) - self._phase), 0)
        while self._due(count) <= elapsed_ns:
            count += 1
        while count and self._due(count - 1) > elapsed_ns:
            count -= 1
        return count

    def expected(self, elapsed_ns: Floats) -> Floats:
        """How many messages the curve asks for by each time: the area under it, in fractions of messages."""
        rounds: Floats | float = 0.0
        if self._period_ns != math.inf:
            rounds, elapsed_ns = np.divmod(elapsed_ns, self._period_ns)
        segment = np.minimum(np.searchsorted(self._begins, elapsed_ns, side="right") - 1, len(self._starts) - 1)
        seconds = (elapsed_ns - self._begins[segment]) / 1e9
        area: Floats = self._steps[segment] + self._starts[segment] * seconds + self._bends[segment] * seconds**2
        return rounds * self._period_messages + area

    def _area(self, elapsed_ns: float) -> float:
        rounds = 0.0
        if self._period_ns != math.inf:
            rounds, elapsed_ns = divmod(elapsed_ns, self._period_ns)
        segment = min(bisect_right(self._begins_ns, elapsed_ns) - 1, len(self._starts) - 1)
        seconds = (elapsed_ns - self._begins_ns[segment]) / 1e9
        area = self._counts[segment] + float(self._starts[segment]) * seconds + float(self._bends[segment]) * seconds**2
        return rounds * self._period_messages + area

    def _due(self, n: int) -> int:
        return int(self.due_ns(np.array([n], np.int64))[0])
