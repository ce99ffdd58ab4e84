"""In which second and phase was a message, and does it count?

Gives the second and the phase of `record.timeline` as column expressions over integers. Works on one row at a time and
aggregates nothing.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import ATTEMPT, FLAGS
from crescendo.record.manifest import Manifest, Phase
from crescendo.record.schema import Flag
from crescendo.record.timeline import OUTSIDE, SECOND_NS, RunTimeline


@dataclass(frozen=True)
class Timeline(RunTimeline):
    """The phases of a run, with the second and the phase of each row as columns."""

    def second_of(self, t_ns: Column) -> Column:
        elapsed_ns = t_ns - F.lit(self.origin_ns).cast("long")
        # Division truncates towards zero; a message before the origin belongs to second -1, not to 0.
        shifted_ns = F.when(elapsed_ns < 0, elapsed_ns - (SECOND_NS - 1)).otherwise(elapsed_ns)
        return F.call_function("div", shifted_ns, F.lit(SECOND_NS))

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
    return Timeline.of(manifest.phases, manifest.started_ns)


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
