"""When is message n due if the rate was changed during the run?

A change scales time: from its instant on, the schedule of the original pacer passes faster or slower, whatever its
shape. Messages that were due before keep their times, so nothing that was sent changes its intended time. Pure, like
every pacer.
"""

from collections.abc import Sequence

import numpy as np

from crescendo.model.arrays import Int64s
from crescendo.model.pacer import Pacer

RateChanges = Sequence[tuple[int, float]]
"""Offset from the start in nanoseconds, in order, and the messages per second of each connection from there on."""


class ChangedRatePacer:
    """A pacer whose rate was changed."""

    def __init__(self, base: Pacer, rate: float, changes: RateChanges) -> None:
        """`rate` is the one that the base pacer was made for."""
        if not base.bounded or rate <= 0:
            raise ValueError("a pacer without a rate has none to change")
        offsets, factors, passed = [0], [1.0], [0.0]
        for offset_ns, new_rate in changes:
            if offset_ns < offsets[-1] or new_rate <= 0:
                raise ValueError("changes of rate must be positive and in order of time")
            passed.append(passed[-1] + (offset_ns - offsets[-1]) * factors[-1])
            offsets.append(offset_ns)
            factors.append(new_rate / rate)
        self._base = base
        self._offsets_ns = np.array(offsets, np.int64)
        self._factors = np.array(factors)
        self._passed_ns = np.array(passed)  # how much of the original schedule has passed at each change

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: Int64s) -> Int64s:
        original = self._base.due_ns(n)
        part = np.searchsorted(self._passed_ns, original, side="right") - 1
        scaled = np.round((original - self._passed_ns[part]) / self._factors[part]).astype(np.int64)
        return np.where(part == 0, original, self._offsets_ns[part] + scaled)

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        part = int(np.searchsorted(self._offsets_ns, elapsed_ns, side="right")) - 1
        passed = self._passed_ns[part] + (elapsed_ns - self._offsets_ns[part]) * self._factors[part]
        # Rounding can put the estimate off by a few messages either way, so due_ns decides.
        count = self._base.due_count(int(passed))
        while self._due_one(count) <= elapsed_ns:
            count += 1
        while count and self._due_one(count - 1) > elapsed_ns:
            count -= 1
        return count

    def _due_one(self, n: int) -> int:
        return int(self.due_ns(np.array([n], np.int64))[0])


def with_changes(pacer: Pacer, rate: float, changes: RateChanges) -> Pacer:
    """The pacer, if nothing was changed; otherwise the one that follows the changes."""
    return ChangedRatePacer(pacer, rate, changes) if changes else pacer
