"""How does the load change over time?

A profile shapes the rate of every group: factor 1 is the group's own rate. It turns a rate into a pacer and knows
nothing about connections or clocks.
"""

import math
from bisect import bisect_right
from collections import Counter
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct, field

from crescendo.model.arrays import Floats
from crescendo.model.curve import Curve, CurveSegment
from crescendo.model.pacer import Pacer, pacer_for
from crescendo.model.trace import TracePacer, trace_of
from crescendo.model.units import Duration

Factor = Annotated[float, Meta(ge=0, le=1e6)]
MAX_STEPS = 10_000
_SINE_SEGMENTS = 72
_BLOCK = 4096
_KEPT_BLOCKS = 8
_GOLDEN = (math.sqrt(5) - 1) / 2


def phase_of(sender: int) -> float:
    """How far into its interval a connection starts.

    Connections are staggered: in phase, a hundred of them would send a burst of a hundred messages, and the last one
    would be late. Multiples of the golden ratio spread any number of connections evenly.
    """
    return sender * _GOLDEN % 1


class _Profile(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    def pacer(self, rate: float, seed: int, sender: int) -> Pacer:
        """The pacer of one connection of rate `rate`; rate 0 (unbounded) cannot be shaped."""
        _check_rate(rate)
        return self._shape(rate, seed, sender)

    @property
    def segments(self) -> int:
        """How many changes of the rate each sender computes."""
        return 1

    def check(self, rate: float) -> None:
        """Reject a rate that this profile cannot shape. Reads no file."""
        self.pacer(rate, 0, 0)

    def expected(self, rate: float, senders: range, elapsed_ns: Floats) -> Floats:
        """How many messages these connections should have sent by each time, on average; `rate` is that of each."""
        return len(senders) * rate * elapsed_ns / 1e9

    def _shape(self, rate: float, seed: int, sender: int) -> Pacer:
        raise NotImplementedError


class _CurveProfile(_Profile, frozen=True):
    """A profile in which all connections follow one curve."""

    def expected(self, rate: float, senders: range, elapsed_ns: Floats) -> Floats:
        return len(senders) * self._shape(rate, 0, 0).expected(elapsed_ns)

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        raise NotImplementedError


class ConstantProfile(_Profile, frozen=True, tag="constant"):
    """Every group at its own rate, from start to end."""

    def pacer(self, rate: float, seed: int, sender: int) -> Pacer:
        return pacer_for(rate, phase_of(sender))


class Ramp(_CurveProfile, frozen=True, tag="ramp"):
    """Linearly from one fraction of the rate to another, then constant."""

    over: Duration
    start: Factor = field(default=0.0, name="from")
    end: Factor = field(default=1.0, name="to")

    def __post_init__(self) -> None:
        _positive("over", self.over)

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        return Curve([CurveSegment(self.over, rate * self.start, rate * self.end)], phase=phase_of(sender))


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One level of `steps`."""

    factor: Factor
    lasts: Duration

    def __post_init__(self) -> None:
        _positive("lasts", self.lasts)


class Steps(_CurveProfile, frozen=True, tag="steps"):
    """One level after the other; the last one holds."""

    steps: Annotated[list[Step], Meta(min_length=1, max_length=MAX_STEPS)]

    @property
    def segments(self) -> int:
        return len(self.steps)

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        segments = [CurveSegment(step.lasts, rate * step.factor, rate * step.factor) for step in self.steps]
        return Curve(segments, phase=phase_of(sender))


class Spike(_CurveProfile, frozen=True, tag="spike"):
    """The group's rate, and for a while `factor` times that rate."""

    at: Duration
    lasts: Duration
    factor: Factor

    def __post_init__(self) -> None:
        _positive("at", self.at)
        _positive("lasts", self.lasts)

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        high = rate * self.factor
        segments = [
            CurveSegment(self.at, rate, rate),
            CurveSegment(self.lasts, high, high),
            CurveSegment(1, rate, rate),
        ]
        return Curve(segments, phase=phase_of(sender))


class OnOff(_CurveProfile, frozen=True, tag="on-off"):
    """Alternates between the group's rate and nothing. (Not `on` and `off`: YAML reads those keys as booleans.)"""

    active: Duration
    idle: Duration

    def __post_init__(self) -> None:
        _positive("active", self.active)
        _positive("idle", self.idle)

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        segments = [CurveSegment(self.active, rate, rate), CurveSegment(self.idle, 0.0, 0.0)]
        return Curve(segments, repeats=True, phase=phase_of(sender))


class Sine(_CurveProfile, frozen=True, tag="sine"):
    """Oscillates around the group's rate by the fraction `depth`. Approximated by linear segments of 5 degrees."""

    period: Duration
    depth: Annotated[float, Meta(gt=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        if self.period < _SINE_SEGMENTS:
            raise ValueError("period must be longer than 0; write a duration such as 60s")

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        marks = [round(self.period * index / _SINE_SEGMENTS) for index in range(_SINE_SEGMENTS + 1)]
        rates = [rate * (1 + self.depth * math.sin(2 * math.pi * mark / self.period)) for mark in marks]
        return Curve(
            [
                CurveSegment(marks[index + 1] - marks[index], max(rates[index], 0.0), max(rates[index + 1], 0.0))
                for index in range(_SINE_SEGMENTS)
            ],
            repeats=True,
            phase=phase_of(sender),
        )


class Poisson(_Profile, frozen=True, tag="poisson"):
    """Random arrivals with exponential gaps; the mean rate is the group's. The same seed gives the same arrivals."""

    def _shape(self, rate: float, seed: int, sender: int) -> Pacer:
        return PoissonPacer(rate, seed, sender)


class Replay(_Profile, frozen=True, tag="replay"):
    """Arrivals of a recorded trace, replayed at `speed` times its own rate. The group's rate does not matter."""

    file: str
    speed: Annotated[float, Meta(gt=0, le=1e6)] = 1.0

    def check(self, rate: float) -> None:
        _check_rate(rate)

    def _shape(self, rate: float, seed: int, sender: int) -> Pacer:
        return self.trace()

    def expected(self, rate: float, senders: range, elapsed_ns: Floats) -> Floats:
        due = [self.trace().due_count(int(each)) for each in elapsed_ns]
        return len(senders) * np.array(due, np.float64)

    def trace(self) -> TracePacer:
        """The arrivals; reads the file. A ValueError names the file and the bad line."""
        return trace_of(self.file, self.speed)


class Incremental(_Profile, frozen=True, tag="incremental"):
    """First the rate grows step by step up to the group's rate; then further connections join, a few at a time.

    Connections join in the order of their numbers. Until then they send nothing.
    """

    every: Duration
    start: Factor = field(default=0.1, name="from")
    step: Annotated[float, Meta(gt=0, le=1)] = 0.1
    connections: Annotated[int, Meta(ge=1)] = 1  # active from the start
    join: Annotated[int, Meta(ge=1)] = 1  # how many join in each later step

    def __post_init__(self) -> None:
        _positive("every", self.every)
        if not 0 < self.start <= 1:
            raise ValueError("from must be a fraction of the rate, above 0 and at most 1")
        if (1 - self.start) / self.step > MAX_STEPS:
            raise ValueError(f"step {self.step:g} is too small: the rate would grow in more than {MAX_STEPS:,} steps")

    @property
    def segments(self) -> int:
        return 1 + math.ceil((1 - self.start) / self.step)

    def expected(self, rate: float, senders: range, elapsed_ns: Floats) -> Floats:
        """Connections that join together follow one curve; those that join after the last time add nothing."""
        levels = len(self._levels())
        last_of = {self._waits(sender, levels): sender for sender in senders}
        joining = Counter(self._waits(sender, levels) for sender in senders)
        total = np.zeros(elapsed_ns.shape)
        for waits, sender in last_of.items():
            if self.every * waits < elapsed_ns.max(initial=0.0):
                total += joining[waits] * self._shape(rate, 0, sender).expected(elapsed_ns)
        return total

    def _levels(self) -> list[float]:
        """The fractions of the rate, one for each step."""
        levels = [self.start]
        while levels[-1] < 1:
            levels.append(min(round(levels[-1] + self.step, 12), 1.0))
        return levels

    def _waits(self, sender: int, levels: int) -> int:
        """For how many steps a connection sends nothing; 0 for those that are active from the start."""
        return 0 if sender < self.connections else levels + (sender - self.connections) // self.join

    def _shape(self, rate: float, seed: int, sender: int) -> Curve:
        levels = self._levels()
        waits = self._waits(sender, len(levels))
        if not waits:
            segments = [CurveSegment(self.every, rate * level, rate * level) for level in levels]
            return Curve(segments, phase=phase_of(sender))
        return Curve(
            [CurveSegment(self.every * waits, 0.0, 0.0), CurveSegment(self.every, rate, rate)], phase=phase_of(sender)
        )


Profile = ConstantProfile | Ramp | Steps | Spike | OnOff | Sine | Poisson | Replay | Incremental


class PoissonPacer:
    """Arrival times in blocks, each drawn from seed, sender and block number alone.

    The start of each block is remembered, so any block can be drawn again; only the latest few are kept.
    """

    def __init__(self, rate: float, seed: int, sender: int) -> None:
        self._scale_ns = 1e9 / rate
        self._key = (seed, sender)
        self._begins_ns = [0.0]
        self._lasts_ns: list[int] = []  # the last arrival of each block drawn so far
        self._kept: dict[int, npt.NDArray[np.int64]] = {}

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        blocks, positions = np.divmod(n, _BLOCK)
        first, last = int(blocks.min()), int(blocks.max())
        if first == last:
            return self._block(first)[positions]
        due = np.empty(n.shape, np.int64)
        for block in np.unique(blocks).tolist():
            inside = blocks == block
            due[inside] = self._block(block)[positions[inside]]
        return due

    def due_count(self, elapsed_ns: int) -> int:
        while not self._lasts_ns or self._lasts_ns[-1] <= elapsed_ns:
            self._block(len(self._lasts_ns))
        block = bisect_right(self._lasts_ns, elapsed_ns)
        return block * _BLOCK + int(np.searchsorted(self._block(block), elapsed_ns, side="right"))

    def _block(self, block: int) -> npt.NDArray[np.int64]:
        known = self._kept.get(block)
        if known is None:
            while len(self._lasts_ns) < block:
                self._draw(len(self._lasts_ns))
            known = self._draw(block)
        return known

    def _draw(self, block: int) -> npt.NDArray[np.int64]:
        gaps = np.random.default_rng([*self._key, block]).standard_exponential(_BLOCK)
        times_ns = self._begins_ns[block] + np.cumsum(gaps) * self._scale_ns
        rounded: npt.NDArray[np.int64] = np.round(times_ns).astype(np.int64)
        if block == len(self._lasts_ns):
            self._begins_ns.append(float(times_ns[-1]))
            self._lasts_ns.append(int(rounded[-1]))
        if len(self._kept) >= _KEPT_BLOCKS:
            del self._kept[next(iter(self._kept))]
        self._kept[block] = rounded
        return rounded


def _check_rate(rate: float) -> None:
    if not rate:
        raise ValueError("a profile other than constant needs a rate; 0 (unbounded) cannot be shaped")
    pacer_for(rate)  # rejects a rate out of range


def _positive(name: str, value: int) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be longer than 0; write a duration such as 30s")
