"""When is message n due?

A pacer is pure: given n it returns the intended offset from the start of the run, in nanoseconds. It never sleeps and
never reads a clock, so tests drive it with integers. The engine asks two questions: which messages are due by now
(`due_count`), and exactly when each of them was due (`due_ns`).
"""

from typing import Annotated, Protocol

import numpy as np
from msgspec import Meta, Struct

from crescendo.model.arrays import Int64s

MIN_RATE, MAX_RATE = 1e-6, 1e9
"""One message in eleven days, and one per nanosecond: beyond these, due times no longer fit their integers."""

UNLIMITED = 2**62
"""More messages than any run sends; the due count of an unbounded pacer."""


class Pacer(Protocol):
    """Arithmetic over message numbers."""

    @property
    def bounded(self) -> bool:
        """Whether messages have intended times."""
        ...

    def due_ns(self, n: Int64s) -> Int64s:
        """The intended offset of each message number."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """How many messages are due when this much time has passed: all n with due_ns(n) <= elapsed_ns."""
        ...


class ConstantPacer(Struct, frozen=True, tag_field="kind", tag="constant", forbid_unknown_fields=True):
    """A fixed rate, in messages per second."""

    rate: Annotated[float, Meta(gt=0)]
    phase: Annotated[float, Meta(ge=0, lt=1)] = 0.0  # how far into its interval the first message is due

    @property
    def bounded(self) -> bool:
        return True

    def due_ns(self, n: Int64s) -> Int64s:
        # From the count, never by adding intervals: a rounded interval drifts 0.03 % at 700,000/s.
        return np.round((n + self.phase) * (1e9 / self.rate)).astype(np.int64)

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        # The estimate can be off by one either way where due_ns rounds, so due_ns decides.
        # Plain numbers, not arrays: the engine asks this thousands of times a second.
        step, phase = 1e9 / self.rate, self.phase
        count = int(elapsed_ns * self.rate / 1e9)
        while round((count + phase) * step) <= elapsed_ns:
            count += 1
        while count and round((count - 1 + phase) * step) > elapsed_ns:
            count -= 1
        return count


class UnboundedPacer(Struct, frozen=True, tag_field="kind", tag="unbounded", forbid_unknown_fields=True):
    """As fast as the receiving side accepts. Messages have no intended time; their send time takes its place."""

    @property
    def bounded(self) -> bool:
        return False

    def due_ns(self, n: Int64s) -> Int64s:
        return np.zeros_like(n)

    def due_count(self, elapsed_ns: int) -> int:
        return UNLIMITED if elapsed_ns >= 0 else 0


def messages_within(pacer: Pacer, duration_ns: int) -> int:
    """How many messages are intended in the half-open interval [0, duration)."""
    return pacer.due_count(duration_ns - 1) if pacer.bounded else UNLIMITED


def pacer_for(rate: float, phase: float = 0.0) -> Pacer:
    """The pacer of one connection: rate 0 means unbounded."""
    if rate and not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"rate {rate:g} is neither 0 (unbounded) nor between {MIN_RATE:g} and {MAX_RATE:g} per second")
    return ConstantPacer(rate, phase) if rate else UnboundedPacer()
