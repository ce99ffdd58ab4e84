"""Which second and which phase of a run is a time in?

Seconds are numbered from the start of the first phase. Arithmetic on integers: with floats, times at the edge of a
second would be off after six weeks. Reads nothing; `pipeline/source/moments.py` says the same as
column expressions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from crescendo.record.manifest import Phase

SECOND_NS = 10**9
MEASURE = "measure"
OUTSIDE = "outside"
"""The phase of a message that was intended before the first phase or after the last."""


@dataclass(frozen=True)
class RunTimeline:
    """The phases of a run. Second 0 begins with the first phase."""

    origin_ns: int
    phases: tuple[Phase, ...]

    @classmethod
    def of(cls, phases: Iterable[Phase], started_ns: int = 0) -> Self:
        """The timeline of these phases. A run without any begins when it was started."""
        in_order = tuple(sorted(phases, key=lambda phase: phase.start_ns))
        return cls(in_order[0].start_ns if in_order else started_ns, in_order)

    @property
    def measure(self) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == MEASURE), None)

    @property
    def whole_seconds(self) -> range:
        """The seconds that lie entirely within the measure phase; a partial second has fewer messages."""
        return range(0) if self.measure is None else whole_ticks(self.measure, self.origin_ns, SECOND_NS)

    def second_at(self, t_ns: int) -> int:
        return (t_ns - self.origin_ns) // SECOND_NS

    def seconds_since_start(self, t_ns: int) -> float:
        return (t_ns - self.origin_ns) / SECOND_NS


def whole_ticks(phase: Phase, origin_ns: int, length_ns: int) -> range:
    """The ticks of this length, numbered from the origin, that lie entirely within a phase."""
    first = -((origin_ns - phase.start_ns) // length_ns)
    return range(first, max((phase.end_ns - origin_ns) // length_ns, first))
