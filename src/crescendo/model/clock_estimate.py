"""How far is another host's clock from ours, how fast does it drift, and how wrong may that be?

An exchange of two packets gives four times. Whatever the delays were, the true offset lies within half of the round
trip around the middle. Of a burst of exchanges the one with the shortest round trip is kept. A straight line through
the bursts is the estimate. Where the clocks drift at a constant rate, line and truth are both straight, so they are
furthest apart at the first or the last burst, and the bound covers both. Pure: no sockets, no clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crescendo.model.errors import LostError

_WORSE = 4.0  # a burst in the middle whose round trip is this many times the best one adds nothing


@dataclass(frozen=True)
class ClockExchange:
    """Sent and received by our clock, received and answered by the other. In nanoseconds."""

    sent_ns: int
    other_received_ns: int
    other_sent_ns: int
    received_ns: int

    @property
    def delay_ns(self) -> int:
        """The time on the network, both ways together."""
        return (self.received_ns - self.sent_ns) - (self.other_sent_ns - self.other_received_ns)


@dataclass(frozen=True)
class ClockSample:
    """What one burst says: our clock minus the other's at one of the other's times, and how wrong that may be."""

    other_ns: int
    offset_ns: int
    bound_ns: int


@dataclass(frozen=True)
class ClockEstimate:
    """Our time = other time + offset + drift · (other time - reference)."""

    reference_ns: int
    offset_ns: int
    drift_ppb: float
    bound_ns: int

    def to_ours(self, other_ns: int) -> int:
        return other_ns + self.offset_ns + round(self.drift_ppb * 1e-9 * (other_ns - self.reference_ns))

    def to_other(self, ours_ns: int) -> int:
        guess_ns = ours_ns - self.offset_ns
        for _ in range(3):  # each step reduces the error by the drift, which is far below 1
            guess_ns -= self.to_ours(guess_ns) - ours_ns
        return guess_ns


def best_of(exchanges: Iterable[ClockExchange]) -> ClockSample | None:
    """What a burst says; None if no exchange is usable."""
    usable = [exchange for exchange in exchanges if exchange.delay_ns >= 0]
    if not usable:
        return None
    best = min(usable, key=lambda exchange: exchange.delay_ns)
    other_ns = (best.other_received_ns + best.other_sent_ns) // 2
    middle_ns = (best.sent_ns + best.received_ns) // 2
    return ClockSample(other_ns, middle_ns - other_ns, best.delay_ns // 2 + 1)  # + 1: both middles are rounded


def estimate(samples: Sequence[ClockSample]) -> ClockEstimate:
    """The line through the samples. LostError without any."""
    if not samples:
        raise LostError("no burst was answered")
    kept = _informative(sorted(samples, key=lambda sample: sample.other_ns))
    reference_ns, first_offset_ns = kept[0].other_ns, kept[0].offset_ns
    # Relative to the first: nanoseconds since boot have too many digits for a float.
    times = np.array([sample.other_ns - reference_ns for sample in kept], dtype=np.float64)
    offsets = np.array([sample.offset_ns - first_offset_ns for sample in kept], dtype=np.float64)
    bounds = np.array([sample.bound_ns for sample in kept], dtype=np.float64)
    slope, intercept = _weighted_line(times, offsets, bounds)
    distances = np.abs(offsets - (intercept + slope * times))
    bound_ns = int(np.ceil((distances + bounds).max())) + 1
    return ClockEstimate(reference_ns, first_offset_ns + round(intercept), slope * 1e9, bound_ns)


def _informative(samples: list[ClockSample]) -> list[ClockSample]:
    """The first, the last, and those between them whose burst was not disturbed."""
    best = min(sample.bound_ns for sample in samples)
    last = len(samples) - 1
    return [
        sample for index, sample in enumerate(samples) if index in {0, last} or sample.bound_ns <= _WORSE * best
    ]  # fmt: skip


def _weighted_line(times: np.ndarray, values: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Slope and intercept by least squares, where a value counts less the more wrong it may be."""
    weights = 1.0 / np.square(errors)
    middle_time, middle_value = np.average(times, weights=weights), np.average(values, weights=weights)
    spread = float(np.sum(weights * np.square(times - middle_time)))
    if spread == 0.0:
        return 0.0, float(middle_value)
    slope = float(np.sum(weights * (times - middle_time) * (values - middle_value)) / spread)
    return slope, float(middle_value - slope * middle_time)
