"""How well does the load generator itself keep up?

Counters that an engine updates while it runs and reads once per second: rates, a live percentile, CPU, and whether the
generator or the system was the limit. They control nothing; results come from the recording.
"""

import time
from collections.abc import Callable

import numpy as np

from crescendo.model.arrays import Int64s
from crescendo.model.histogram import bucket_of, percentile

_MIDDLE = 1 << 14  # more than the largest bucket of 64 bits


class Distribution:
    """Samples of one second, folded into buckets; the whole run takes a few thousand counts."""

    def __init__(self) -> None:
        self._pending: list[Int64s] = []
        self._singles: list[int] = []
        self._counts = np.zeros(2 * _MIDDLE, np.int64)  # by bucket, from -_MIDDLE on
        self._latest: Int64s | None = None

    def add(self, samples_ns: Int64s) -> None:
        self._pending.append(samples_ns)

    def add_one(self, sample_ns: int) -> None:
        self._singles.append(sample_ns)

    def fold(self, percent: float) -> int | None:
        """Fold the samples since the last call and return their percentile; None if there are none."""
        if self._singles:
            self._pending.append(_in_64_bits(self._singles))
            self._singles = []
        self._latest = None
        if not self._pending:
            return None
        every = bucket_of(np.concatenate(self._pending))
        self._pending.clear()
        # A few thousand buckets: counting beats sorting the samples.
        self._latest = np.bincount(every + _MIDDLE, minlength=2 * _MIDDLE)
        self._counts += self._latest
        return _percentile(self._latest, percent)

    def latest(self, percent: float) -> int | None:
        """Another percentile of the samples of the last fold."""
        return None if self._latest is None else _percentile(self._latest, percent)

    def overall(self, percent: float) -> int | None:
        """The percentile over the whole run."""
        self.fold(percent)
        return _percentile(self._counts, percent) if self._counts.any() else None


def _percentile(counts: Int64s, percent: float) -> int:
    used = np.flatnonzero(counts)
    return percentile(used - _MIDDLE, counts[used], percent)


def _in_64_bits(samples_ns: list[int]) -> Int64s:
    try:
        return np.array(samples_ns, np.int64)
    except OverflowError:
        # The times of a damaged stamp may exceed 64 bits; it must not stop the receiver.
        return np.array([min(max(sample, -(2**63)), 2**63 - 1) for sample in samples_ns], np.int64)


class RateMeter:
    """Rates between two samples: messages per second, and cores used."""

    def __init__(self, now_ns: int, cpu_seconds: Callable[[], float] = time.process_time) -> None:
        self._last_ns = now_ns
        self._messages = 0
        self._cpu_seconds = cpu_seconds
        self._cpu_s = cpu_seconds()

    def sample(self, now_ns: int, messages: int) -> tuple[float, float]:
        """Messages per second and cores since the last sample; zero before the first one is due."""
        if now_ns < self._last_ns:
            return 0.0, 0.0
        seconds = max((now_ns - self._last_ns) / 1e9, 1e-9)
        cpu_s = self._cpu_seconds()
        rate, cores = (messages - self._messages) / seconds, (cpu_s - self._cpu_s) / seconds
        self._last_ns, self._messages, self._cpu_s = now_ns, messages, cpu_s
        return rate, cores
