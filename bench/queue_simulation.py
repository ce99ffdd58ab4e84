"""Latencies of simulated systems whose true percentiles are known.

M/M/1 and M/G/1 queues by Lindley's recursion, independent samples, and a system that stands still now and then. The
true percentiles come from formulas, not from the simulation. 1,000 messages can be served per second.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SERVICES_PER_S = 1000.0
WARM_UP_S = 60
_LONG_SHARE, _LONG_S, _SHORT_S = 0.05, 10e-3, 0.5e-3 / 0.95
_STALL_EVERY_S, _STALL_S = 20.0, 0.5


@dataclass(frozen=True)
class SimulatedSystem:
    """One system at one load, the share of time in which it works."""

    kind: str
    load: float

    def run(self, seconds: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Arrival times and latencies in seconds of one run, in the steady state from its start."""
        rate = self.load * SERVICES_PER_S
        if self.kind in {"independent", "stalls"}:
            arrived = np.sort(random.random(random.poisson(rate * seconds))) * seconds
            latency = random.standard_exponential(arrived.size) / SERVICES_PER_S
            return arrived, latency if self.kind == "independent" else latency + _stalled(arrived, seconds, random)
        messages = int(rate * (seconds + WARM_UP_S) * 1.01) + 3000
        gaps = random.standard_exponential(messages) / rate
        served = self._service(messages, random)
        steps = np.concatenate([[0.0], served[:-1] - gaps[1:]])
        # Lindley: a message waits for the work ahead of it, which cannot fall below zero.
        work = np.cumsum(steps)
        latency = work - np.minimum(np.minimum.accumulate(work), 0.0) + served
        arrived = np.cumsum(gaps) - WARM_UP_S
        first, end = np.searchsorted(arrived, [0, seconds])
        return arrived[first:end], latency[first:end]

    def percentiles(self, shares: Floats) -> Floats:
        """The true percentiles in seconds."""
        if self.kind == "M/M/1":
            return -np.log(1 - shares) / (SERVICES_PER_S * (1 - self.load))
        if self.kind == "independent":
            return -np.log(1 - shares) / SERVICES_PER_S
        return _interpolated(self._distribution(), shares)

    @property
    def relaxation_s(self) -> float:
        """The time in which the memory of a state fades by 1/e: exact for M/M/1, in heavy traffic for M/G/1."""
        if self.kind == "independent":
            return 0.0
        if self.kind == "stalls":
            return _STALL_EVERY_S
        variation = 1.0 if self.kind == "M/M/1" else _squared_variation()
        return (1 + variation) / 2 / (SERVICES_PER_S * (1 - np.sqrt(self.load)) ** 2)

    def _service(self, messages: int, random: np.random.Generator) -> Floats:
        if self.kind == "M/M/1":
            return random.standard_exponential(messages) / SERVICES_PER_S
        spread = random.random(messages) + 0.5
        return spread * np.where(random.random(messages) < _LONG_SHARE, _LONG_S, _SHORT_S)

    def _distribution(self) -> tuple[Floats, Floats]:
        """Values and the probability of at most that, on a lattice, by Fourier transform."""
        step, size = 4e-6, 1 << 21
        at = np.arange(size) * step
        if self.kind == "stalls":  # at most one stall at a time: the other is 1 in 1,600
            alone = np.diff(np.concatenate([[0.0], 1 - np.exp(-SERVICES_PER_S * (at + step / 2))]))
            stopped = _STALL_S / _STALL_EVERY_S
            remaining = stopped * np.diff(np.concatenate([[0.0], 1 - np.exp(-(at + step / 2) / _STALL_S)]))
            remaining[0] += 1 - stopped
            transform = np.fft.rfft(alone, 2 * size) * np.fft.rfft(remaining, 2 * size)
        else:  # Pollaczek and Khinchine: the work ahead is a geometric number of residual service times
            served = np.diff(np.concatenate([[0.0], _service_distribution(at + step / 2)]))
            residual = 1 - _service_distribution(at)
            residual[0] /= 2  # the lattice point 0 stands for half a step
            residual /= residual.sum()
            waiting = (1 - self.load) / (1 - self.load * np.fft.rfft(residual, 2 * size))
            transform = waiting * np.fft.rfft(served, 2 * size)
        return at + step / 2, np.cumsum(np.fft.irfft(transform, 2 * size)[:size])


def _stalled(arrived: Floats, seconds: int, random: np.random.Generator) -> Floats:
    """How long the system still stands when each message arrives."""
    early = 20 * _STALL_S
    begun = np.sort(random.random(random.poisson((seconds + early) / _STALL_EVERY_S))) * (seconds + early) - early
    if not begun.size:
        return np.zeros_like(arrived)
    ended = np.maximum.accumulate(begun + random.exponential(_STALL_S, begun.size))
    latest = np.searchsorted(begun, arrived) - 1
    return np.where(latest >= 0, np.maximum(ended[np.maximum(latest, 0)] - arrived, 0.0), 0.0)


def _service_distribution(at: Floats) -> Floats:
    parts = ((_LONG_SHARE, _LONG_S), (1 - _LONG_SHARE, _SHORT_S))
    total: Floats = np.sum([share * np.clip(at / mean - 0.5, 0, 1) for share, mean in parts], axis=0)
    return total


def _squared_variation() -> float:
    second = (_LONG_SHARE * _LONG_S**2 + (1 - _LONG_SHARE) * _SHORT_S**2) * (1 + 1 / 12)
    return second * SERVICES_PER_S**2 - 1


def _interpolated(distribution: tuple[Floats, Floats], shares: Floats) -> Floats:
    values, probability = distribution
    return np.interp(shares, probability, values)
