"""In which second and phase was a message, and does it count?

Gives the second and the phase as column expressions over integers: with floats, messages at the edge of a second
would be off after six weeks. Works on one row at a time and aggregates nothing.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import ATTEMPT, FLAGS
from crescendo.record.manifest import Manifest, Phase
from crescendo.record.schema import Flag

MEASURE = "measure"
OUTSIDE = "outside"
"""The phase of a message that was intended before the first phase or after the last."""

_SECOND_NS = 10**9


@dataclass(frozen=True)
class Timeline:
    """The phases of a run. Second 0 begins with the first phase."""

    origin_ns: int
    phases: tuple[Phase, ...]

    @property
    def measure(self) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == MEASURE), None)

    @property
    def whole_seconds(self) -> range:
        """The seconds that lie entirely within the measure phase; a partial second has fewer messages."""
        if self.measure is None:
            return range(0)
        first = -((self.origin_ns - self.measure.start_ns) // _SECOND_NS)
        return range(first, max((self.measure.end_ns - self.origin_ns) // _SECOND_NS, first))

    def second_of(self, t_ns: Column) -> Column:
        elapsed_ns = t_ns - F.lit(self.origin_ns).cast("long")
        # Division truncates towards zero; a message before the origin belongs to second -1, not to 0.
        shifted_ns = F.when(elapsed_ns < 0, elapsed_ns - (_SECOND_NS - 1)).otherwise(elapsed_ns)
        return F.call_function("div", shifted_ns, F.lit(_SECOND_NS))

    def phase_of(self, t_ns: Column) -> Column:
        """The position of the phase; the number of phases stands for none of them."""
        position = F.lit(len(self.phases))
        for index, phase in reversed(list(enumerate(self.phases))):
            position = F.when(within(t_ns, phase), F.lit(index)).otherwise(position)
        return position

    def phase_name(self, position: Column) -> Column:
        return F.get(F.array(*(F.lit(name) for name in (*(phase.name for phase in self.phases), OUTSIDE))), position)

    def measured(self, t_ns: Column) -> Column:
        return F.lit(False) if self.measure is None else within(t_ns, self.measure)


def timeline_of(manifest: Manifest) -> Timeline:
    phases = tuple(sorted(manifest.phases, key=lambda phase: phase.start_ns))
    return Timeline(phases[0].start_ns if phases else manifest.started_ns, phases)


def within(t_ns: Column, phase: Phase) -> Column:
    return (t_ns >= F.lit(phase.start_ns).cast("long")) & (t_ns < F.lit(phase.end_ns).cast("long"))


def flagged(flag: Flag) -> Column:
    return F.col(FLAGS).bitwiseAND(F.lit(int(flag))) != 0


def deliveries(received: DataFrame) -> DataFrame:
    """The rows that are messages of this run: neither corrupt nor from another run."""
    return received.where(~flagged(Flag.CORRUPT | Flag.STRAY))


def first_attempts(sent: DataFrame) -> DataFrame:
    """One row per message, however often it was sent."""
    return sent.where(F.col(ATTEMPT) == 1)
